"""Rule 12, case 66: texts taken from columns with other collations are the same texts.

Each call is made with plain texts; with texts from columns of one other collation; and with such columns that
PostgreSQL cannot tell which collation would hold.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import psycopg
import pytest

from tests.helpers import Clock, Conn, Row

Connect = Callable[..., Conn]

# The texts of each call, in the order of its placeholders; what else it takes stands in the query.
CALLS: dict[str, tuple[str, list[str]]] = {
    "claim_window": (
        "claim_window({}, {}, {}, '1 hour', {})",
        ["nightly", "0 3 * * *", "Europe/Berlin", "host-a"],
    ),
    "claim_window @daily": ("claim_window({}, {}, {}, owner => {})", ["daily", "@Daily", "UTC", "host-a"]),
    "claim_window every": ("claim_window({}, {}, owner => {})", ["every", "Every 90 minutes", "host-a"]),
    "claim_window names": (
        "claim_window({}, {}, owner => {})",
        ["names", "0 9 1-7,LW jan-MAR fri#2,MONL", "host-a"],
    ),
    "claim_key": ("claim_key({}, {}, '1 hour', {}, {})", ["invoices", "order-17", "host-a", "fingerprint"]),
    "acquire_lease": ("acquire_lease({}, '1 hour', {})", ["deploy", "host-a"]),
    "acquire_lease slots": ("acquire_lease({}, '1 hour', {}, slots => 3)", ["import", "host-a"]),
    "mark_failed": (
        "mark_failed((select token from pgonce.claim_key('failing', 'k', '1 hour')), {})",
        ["it failed"],
    ),
    "define_job": (
        "define_job({}, {}, {}, overlap => {})",
        ["defined", "30 2 * * sun", "Europe/Berlin", "replace"],
    ),
    "window_at": ("window_at({}, {}, '2026-06-01Z')", ["0 9 L * FRIL", "America/New_York"]),
    "windows": ("windows({}, {}, '2026-06-01Z', '2026-06-08Z')", ["*/45 1-5/2 * * MON-fri", "Asia/Tokyo"]),
    "key_of": ("key_of('{{\"a\": 1}}', {})", ["v2"]),
    "grant_worker": ("grant_worker({})", ["stranger"]),
    "grant_reader": ("grant_reader({})", ["stranger"]),
}
REFUSED: dict[str, tuple[str, list[str]]] = {
    "claim_window": ("claim_window({}, {}, {}, '1 hour', {})", ["refused", "0 3 * *", "Europe/Berlin", "a"]),
    "claim_window zone": ("claim_window({}, {}, {}, '1 hour', {})", ["refused", "0 3 * * *", "berlin", "a"]),
    "claim_window owner": ("claim_window({}, {}, {}, '1 hour', {})", ["refused", "@daily", "UTC", " a"]),
    "claim_window item": ("claim_window({}, {})", ["refused", "0 3 * * funday"]),
    "claim_window other": ("claim_window({}, {}, {})", ["defined", "@daily", "UTC"]),
    "claim_window none": ("claim_window({}, owner => {})", ["refused", "a"]),
    "claim_key": ("claim_key({}, {}, '1 hour', {})", ["invoices", "order\t17", "a"]),
    "claim_key other": (
        "claim_key({}, {}, '1 hour', fingerprint => {})",
        ["invoices", "order-17", "another"],
    ),
    "acquire_lease": ("acquire_lease({}, '1 hour', {})", [" deploy", "a"]),
    "acquire_lease slots": ("acquire_lease({}, '1 hour', {}, slots => 4)", ["import", "a"]),
    "define_job": ("define_job({}, {}, {}, overlap => {})", ["refused", "@daily", "UTC", "never"]),
    "window_at": ("window_at({}, {}, '2026-06-01Z')", ["every 3 blue moons", "UTC"]),
    "windows": ("windows({}, {}, '2026-06-01Z', '2026-06-08Z')", ["1-60 * * * *", "UTC"]),
    "key_of": ("key_of('1', {})", ["\n"]),
    "grant_worker": ("grant_worker({})", ["nobody of this name"]),
}


@pytest.fixture
def collations(conn: Conn) -> list[str]:
    """Other collations than "C" that this server has; with ICU, one for which different texts are equal."""
    conn.execute("create schema texts")
    found = ['"POSIX"', '"C.utf8"']
    try:
        conn.execute(
            "create collation texts.odd (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
        )
    except psycopg.errors.FeatureNotSupported:  # built without ICU
        return found
    return [*found, "texts.odd", '"und-x-icu"']


def query(call: str, texts: list[str], collation_of: Callable[[int], str]) -> str:
    """The call with each text from a column of its own."""
    columns = ", ".join(f"c{n} text collate {collation_of(n)}" for n in range(len(texts)))
    names = [f"t.c{n}" for n in range(len(texts))]
    values = ", ".join("'" + text.replace("'", "''") + "'" for text in texts)
    return (
        f"create temp table t ({columns}); insert into t values ({values});"
        f"select a.* from t, pgonce.{call.format(*names)} a"
    )


@contextmanager
def undone(conn: Conn) -> Iterator[None]:
    with conn.transaction(force_rollback=True):
        yield


def answer(conn: Conn, statements: str) -> list[Row]:
    """What the last of the statements returns, but for tokens."""
    cursor = conn.execute(statements)
    while cursor.nextset():
        pass
    rows = cursor.fetchall()
    for row in rows:
        if row.get("token") is not None:
            row["token"] = "a token"
    return rows


def ways(collations: list[str]) -> dict[str, Callable[[int], str]]:
    one = {name: (lambda n, name=name: name) for name in collations}
    mixed = {"mixed": lambda n: [*collations, '"C"'][n % (len(collations) + 1)]}
    return {**one, **mixed}


@pytest.mark.parametrize("what", CALLS)
def test_the_same_answer(conn: Conn, clock: Clock, collations: list[str], what: str) -> None:
    """Asked, and asked again, when the record is known.

    Seen to fail (42P22, 0A000): a text compared, matched or changed under the collation it came with.
    """
    call, texts = CALLS[what]

    def answers(collation_of: Callable[[int], str]) -> list[list[Row]]:
        statements = query(call, texts, collation_of)
        again = statements[statements.rindex("select a.*") :]
        with undone(conn):
            first = answer(conn, statements)
            return [first, *([] if "mark_failed" in what else [answer(conn, again)])]

    plain = answers(lambda n: '"default"')
    assert plain[0]
    for how, collation_of in ways(collations).items():
        assert answers(collation_of) == plain, how


@pytest.mark.parametrize("what", REFUSED)
def test_the_same_refusal(conn: Conn, clock: Clock, collations: list[str], what: str) -> None:
    for known in ("define_job", "claim_key", "acquire_lease slots"):
        call, texts = CALLS[known]
        conn.execute(f"select pgonce.{call}".format(*(f"'{text}'" for text in texts)).replace("{{", "{"))
    call, texts = REFUSED[what]

    def refusal(collation_of: Callable[[int], str]) -> tuple[str | None, ...]:
        with undone(conn), pytest.raises(psycopg.Error) as raised:
            answer(conn, query(call, texts, collation_of))
        said = raised.value.diag
        return said.sqlstate, said.message_primary, said.message_hint

    plain = refusal(lambda n: '"default"')
    assert plain[0] in ("22023", "ON002")
    for how, collation_of in ways(collations).items():
        assert refusal(collation_of) == plain, how
