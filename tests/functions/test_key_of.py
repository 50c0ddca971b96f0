"""key_of: the same key for the same payload, in every client."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable

import pytest

from tests.functions.refusals import assert_refused, bad_names
from tests.helpers import Conn, call, value

Connect = Callable[..., Conn]


def key_of(conn: Conn, payload: str, version: str | None = None) -> str:
    key: str = call(conn, "key_of", payload=payload, version=version)
    return key


@pytest.mark.parametrize(
    "same",
    [
        ["1", "1.0", "1e0", "10e-1", "1.000", "0.1e1"],
        ["0", "-0", "0.0", "-0.0", "0e10"],
        ["100", "1e2", "1E+2"],
        ["0.1", "1e-1", "0.10"],
        ['{"a":1,"b":2}', '{ "b": 2.0, "a": 1 }', '{"b":2,"a":7,"a":1}'],
        ["[1, 2]", " [1.0,\n2] "],
        ["{}", " { } "],
        ['"é"', '"\\u00e9"'],
        ['"/"', '"\\/"'],
        [
            '{"order": {"lines": [{"n": 1, "sku": "x"}], "total": 10.50}, "to": null}',
            '{"to":null,"order":{"total":10.5,"lines":[{"sku":"x","n":1.0}]}}',
        ],
    ],
)
def test_the_same_payload(conn: Conn, same: list[str]) -> None:
    assert len({key_of(conn, payload) for payload in same}) == 1


def test_other_payloads(conn: Conn) -> None:
    others = [
        "null", '"null"', "true", '"true"', "false", "0", '"0"', "1", "10", "-1", '"1"', '""', "[]",
        "{}", "[[]]", "[{}]", "[null]", "[1, 2]", "[2, 1]", "[12]", '["1", "2"]', '["1,2"]', '{"a": 1}',
        '{"A": 1}', '{"a": "1"}', '{"a": null}', '{"a": {"b": 1}}', '{"a": 1, "b": 1}',
        '{"a\\":1,\\"b": 1}', '[{"a": 1}]', '["a", 1]', '" "', '"a"', '"a "', '"A"', '"é"', '"e\\u0301"',
        "1e100", "1e-100", "9007199254740993", "9007199254740992",
    ]  # fmt: skip
    assert len({key_of(conn, payload) for payload in others}) == len(others)


def test_64_hex_digits_by_a_rule_that_any_client_can_follow(conn: Conn) -> None:
    """SHA-256 of: the version as JSON text, a space, the payload with sorted keys and no spaces."""
    payload = {"b": [1, 2.5, None, True], "a": "é\n"}
    for version in (None, "v1", 'a"b'):
        text = (
            json.dumps(version, ensure_ascii=False)
            + " "
            + json.dumps(payload, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
        )
        expected = hashlib.sha256(text.encode()).hexdigest()
        assert key_of(conn, json.dumps(payload), version) == expected


def test_another_version_of_the_handler_gives_another_key(conn: Conn) -> None:
    versions = [None, "null", "1", "2", "1 1", "é"]
    assert len({key_of(conn, "1", version) for version in versions}) == len(versions)
    assert key_of(conn, "1", "2") == key_of(conn, "1.0", "2")
    assert call(conn, "key_of", payload="1") == key_of(conn, "1", None)


def test_whatever_the_session(connect: Connect) -> None:
    """Encoding, number of float digits and spelling of quotes in the session change nothing."""
    query = 'select pgonce.key_of(\'{"caf\\u00e9": [1.50, 1e-7, 0.1], "Z": "\\\\"}\')'
    keys = {
        value(connect(options=options), query)
        for options in (
            "",
            "-c client_encoding=latin1 -c extra_float_digits=-15",
            "-c search_path=pg_temp,public -c bytea_output=escape",
            "-c lc_numeric=C -c DateStyle=German -c backslash_quote=off",
        )
    }
    assert len(keys) == 1


def test_a_key_can_be_claimed(connect: Connect) -> None:
    worker = connect("worker")
    key = key_of(worker, '{"order": 17}')
    answer = call(worker, "claim_key", scope="invoices", key=key, ttl="1 minute")
    assert (answer["reason"], answer["key"]) == ("granted", key)


def test_a_deep_payload(conn: Conn) -> None:
    """As deep as any message that people send."""
    deep = "[" * 199 + "]" * 199
    assert key_of(conn, deep) != key_of(conn, f"[{deep}]")


@pytest.mark.parametrize("nested", ['[{"a": ' * 450 + "1" + "}]" * 450, "[" * 201 + "1" + "]" * 201])
def test_a_payload_that_is_too_deep(conn: Conn, nested: str) -> None:
    """Case 77. Seen to fail: 54001, stack depth limit exceeded."""
    assert_refused(
        conn, "key_of", {"payload": "{}"}, [("payload", nested, "deeper than 200 levels", "only the part")]
    )


def test_refusals(conn: Conn) -> None:
    assert_refused(
        conn,
        "key_of",
        {"payload": "{}", "version": "1"},
        [
            ("payload", None, "payload must not be null", "'null'::jsonb"),
            *bad_names("version", required=False),
        ],
    )
