"""mark_done: the run is finished, once; its result is kept. The ttl is ten minutes; it is noon."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from tests.functions.holding import KINDS, NEVER_GRANTED, after, granted, hold, run, sqlstate
from tests.functions.refusals import assert_refused, bad_durations, tables
from tests.helpers import Clock, Conn, Row, call, value

Connect = Callable[..., Conn]

RUNS = [kind for kind in KINDS if kind != "lease"]

every_run = pytest.mark.parametrize("kind", RUNS)


def record(conn: Conn) -> Row:
    (key,) = (row["key"] for row in conn.execute("select key from pgonce.runs").fetchall())
    return run(conn, "thing", key)


@every_run
def test_it_is_on_record(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(minutes=1)
    assert call(conn, "mark_done", token=token, result='{"rows": 7}') is True
    after_it = record(conn)
    assert (after_it["state"], after_it["result"], after_it["error"]) == ("done", {"rows": 7}, None)
    assert (after_it["finished_at"], after_it["attempt"], after_it["token"]) == (after(minutes=1), 1, token)
    assert after_it["expired"] is False
    assert hold(conn, kind)["reason"] == "done"


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (None, None),
        ("null", None),
        ("0", 0),
        ("[]", []),
        ('"é\\u0001"', "é\x01"),
        ('{"b": {"a": 1.50}}', {"b": {"a": 1.5}}),
    ],
)
def test_a_result_is_any_json(conn: Conn, clock: Clock, given: str | None, stored: Any) -> None:
    for kind in RUNS:
        assert call(conn, "mark_done", token=granted(conn, kind)["token"], result=given) is True
        assert hold(conn, kind)["result"] == stored
    assert value(conn, "select array_agg(result is null) from pgonce.run") == [given is None] * 2


@every_run
def test_the_same_call_again(conn: Conn, clock: Clock, kind: str) -> None:
    """True, for ever; the first result, time and keep stay. The other finishing call: ON001."""
    token = granted(conn, kind)["token"]
    call(conn, "mark_done", token=token, result="1", keep="2 hours")
    before = tables(conn)
    for minutes in (0, 1, 60):
        clock.set(after(minutes=minutes))
        assert call(conn, "mark_done", token=token, result="2", keep="3 hours") is True
        assert call(conn, "mark_done", token=token) is True
        assert sqlstate(conn, "mark_failed", token=token) == "ON001"
    assert tables(conn) == before


@every_run
def test_not_after_mark_failed(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    call(conn, "mark_failed", token=token)
    assert sqlstate(conn, "mark_done", token=token) == "ON001"
    assert record(conn)["state"] == "failed"


@every_run
def test_late_when_nobody_came(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(hours=3)
    assert call(conn, "mark_done", token=token) is True
    assert record(conn)["state"] == "done"


@every_run
@pytest.mark.parametrize("other_is", ["running", "done", "failed"])
def test_taken_over(conn: Conn, connect: Connect, clock: Clock, kind: str, other_is: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(minutes=10)
    other = granted(connect(), kind)["token"]
    if other_is != "running":
        call(conn, f"mark_{other_is}", token=other)
    before = tables(conn)
    assert sqlstate(conn, "mark_done", token=token, result='"stale"') == "ON001"
    assert tables(conn) == before


@every_run
def test_done_after_a_failed_attempt_forgets_its_error(conn: Conn, clock: Clock, kind: str) -> None:
    call(conn, "mark_failed", token=granted(conn, kind)["token"], error="boom", retry_in="0")
    call(conn, "mark_done", token=granted(conn, kind)["token"])
    assert (record(conn)["error"], record(conn)["attempt"]) == (None, 2)


@every_run
@pytest.mark.parametrize(
    ("defined", "given", "kept"),
    [
        (None, None, timedelta(days=90)),
        ("1 day", None, timedelta(days=1)),
        ("1 day", "2 hours", timedelta(hours=2)),
        ("1 day", "366 days", timedelta(days=366)),
        ("1 day", "0", timedelta(0)),
    ],
)
def test_keep(
    conn: Conn, clock: Clock, kind: str, defined: str | None, given: str | None, kept: timedelta
) -> None:
    """How long the record is kept at least: the call's, the job's as it was defined at the grant, 90 days."""
    if defined is not None:
        call(conn, "define_job", job="thing", keep=defined, schedule="@daily" if kind == "window" else None)
    token = granted(conn, kind)["token"]
    call(conn, "define_job", job="thing", keep="5 days", schedule="@daily" if kind == "window" else None)
    clock.advance(minutes=1)
    call(conn, "mark_done", token=token, keep=given)
    assert value(conn, "select keep_until from pgonce.run") == after(minutes=1) + kept


def test_a_window_is_never_granted_again_while_it_is_on_record(conn: Conn, clock: Clock) -> None:
    """Unlike an operation's, a window's keep ends nothing by itself."""
    call(conn, "mark_done", token=granted(conn, "window")["token"], keep="0")
    clock.advance(hours=11)
    assert hold(conn, "window")["reason"] == "done"
    clock.advance(days=1)
    day = after(hours=-12)
    assert call(conn, "claim_window", job="thing", window_start=day)["reason"] == "done"


@every_run
def test_whose_token_it_is(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """The role's it was granted to, and the schema owner's."""
    token = granted(connect("worker"), kind)["token"]
    assert sqlstate(connect("worker2"), "mark_done", token=token) == "ON001"
    assert record(conn)["state"] == "running"
    assert call(connect("worker"), "mark_done", token=token) is True
    assert call(conn, "mark_done", token=token) is True
    assert sqlstate(connect("worker2"), "mark_done", token=token) == "ON001"


@every_run
def test_the_schema_owner_may_finish(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    token = granted(connect("worker"), kind)["token"]
    assert call(conn, "mark_done", token=token) is True


def test_a_token_that_was_never_granted(conn: Conn, clock: Clock) -> None:
    for kind in KINDS:
        granted(conn, kind)
    before = tables(conn)
    for token in NEVER_GRANTED:
        assert sqlstate(conn, "mark_done", token=token) == "ON001"
    assert tables(conn) == before


@every_run
def test_refusals(conn: Conn, clock: Clock, kind: str) -> None:
    """Running or done; and a lease is released, not finished."""
    lease, token = granted(conn, "lease")["token"], granted(conn, kind)["token"]
    for _ in range(2):
        assert_refused(
            conn,
            "mark_done",
            {"token": token, "keep": "1 hour"},
            [
                *bad_durations(conn, "keep", zero=True),
                ("token", lease, f"token {lease} is that of a lease", "release_lease"),
            ],
        )
        call(conn, "mark_done", token=token)


def test_a_released_lease_is_no_run_either(conn: Conn, clock: Clock) -> None:
    token = granted(conn, "lease")["token"]
    call(conn, "release_lease", token=token)
    assert sqlstate(conn, "mark_done", token=token) == "22023"
