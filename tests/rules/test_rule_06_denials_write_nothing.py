"""Rule 6: a denial that is decided by reading takes no lock and no xid, writes nothing, waits for nobody.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_a_hundred_denials_leave_no_trace: denial of a key locks; denial of a lease locks; denials draw a
  token
- test_a_denial_with_a_nonce_leaves_no_trace: denial of a key locks; denial of a lease locks
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from pgonce._embedded import Server
from tests.helpers import Conn, Row, call, value
from tests.rules.tools import (
    KINDS,
    RUNS,
    W2,
    answer,
    ask,
    define,
    expire,
    finish,
    grant,
    grant_all,
    log_waits,
    stored,
    waits_logged,
)

Ask = Callable[[Conn], Row]

WAL = "select pg_current_wal_insert_lsn() - '0/0'"


def window_held(a: Conn, owner: Conn) -> Ask:
    grant(a, "window")
    return lambda b: ask(b, "window")


def window_done(a: Conn, owner: Conn) -> Ask:
    finish(a, "window", grant(a, "window")["token"])
    return lambda b: ask(b, "window")


def window_overlap(a: Conn, owner: Conn) -> Ask:
    grant(a, "window")
    return lambda b: ask(b, "window", window_start=W2)


def window_backoff(a: Conn, owner: Conn) -> Ask:
    call(a, "mark_failed", token=grant(a, "window")["token"], retry_in="1 hour")
    return lambda b: ask(b, "window")


def window_exhausted(a: Conn, owner: Conn) -> Ask:
    define(owner, "window", max_attempts=1)
    call(a, "mark_failed", token=grant(a, "window")["token"], retry_in="0")
    return lambda b: ask(b, "window")


def window_skipped(a: Conn, owner: Conn) -> Ask:
    call(owner, "define_job", job="window", schedule="@yearly")
    return lambda b: ask(b, "window")


def window_ahead(a: Conn, owner: Conn) -> Ask:
    return lambda b: ask(b, "window", window_start="2990-01-01T00:00:00Z")


def window_late(a: Conn, owner: Conn) -> Ask:
    owner.execute("""
        create or replace function pgonce.clock() returns timestamptz language sql volatile
        as $$ select timestamptz '2026-06-01 12:34:56Z' $$
    """)
    call(owner, "define_job", job="window", schedule="@yearly", start_deadline="1 second")
    return lambda b: answer(b, "claim_window", job="window")


def key_held(a: Conn, owner: Conn) -> Ask:
    grant(a, "key")
    return lambda b: ask(b, "key")


def key_done(a: Conn, owner: Conn) -> Ask:
    finish(a, "key", grant(a, "key")["token"])
    return lambda b: ask(b, "key")


def key_backoff(a: Conn, owner: Conn) -> Ask:
    call(a, "mark_failed", token=grant(a, "key")["token"], retry_in="1 hour")
    return lambda b: ask(b, "key")


def key_exhausted(a: Conn, owner: Conn) -> Ask:
    define(owner, "key", max_attempts=1)
    call(a, "mark_failed", token=grant(a, "key")["token"], retry_in="0")
    return lambda b: ask(b, "key")


def lease_held(a: Conn, owner: Conn) -> Ask:
    grant(a, "lease")
    return lambda b: ask(b, "lease")


def slots_held(a: Conn, owner: Conn) -> Ask:
    grant_all(a, "slots")
    return lambda b: ask(b, "slots")


def released_held(a: Conn, owner: Conn) -> Ask:
    """Released, but min_hold is not over."""
    finish(a, "lease", grant(a, "lease", min_hold="1 hour")["token"])
    return lambda b: ask(b, "lease")


DENIALS = [
    window_held,
    window_done,
    window_overlap,
    window_backoff,
    window_exhausted,
    window_skipped,
    window_ahead,
    window_late,
    key_held,
    key_done,
    key_backoff,
    key_exhausted,
    lease_held,
    slots_held,
    released_held,
]


@pytest.mark.parametrize("prepare", DENIALS)
def test_a_hundred_denials_leave_no_trace(
    a: Conn, b: Conn, c: Conn, conn: Conn, prepare: Callable[[Conn, Conn], Ask]
) -> None:
    """No transaction id, no WAL, no row lock, no row; with a nonce as without."""
    deny = prepare(a, conn)
    expected = prepare.__name__.rsplit("_", 1)[1]
    before = stored(conn)

    b.execute("begin")
    assert deny(b)["reason"] == expected  # the first one may set hint bits
    written = []
    for _ in range(3):  # the server itself writes a few bytes now and then, but not three times on end
        start = value(c, WAL)
        for _ in range(100):
            denial = deny(b)
            assert (denial["claimed"], denial["reason"], denial["token"]) == (False, expected, None)
        written.append(value(c, WAL) - start)
    assert 0 in written
    assert value(b, "select pg_current_xact_id_if_assigned()") is None
    for name in before:  # nothing of it is locked: this would raise
        conn.execute(f"select from pgonce.{name} for update nowait")
    b.execute("commit")
    assert stored(conn) == before


def test_a_denial_with_a_nonce_leaves_no_trace(a: Conn, b: Conn) -> None:
    """The look-up of a question that was not asked before is a reading, too."""
    for kind in KINDS:
        grant_all(a, kind)
        b.execute("begin")
        assert ask(b, kind, nonce="00000000-0000-4000-8000-000000000001")["reason"] == "held"
        assert value(b, "select pg_current_xact_id_if_assigned()") is None
        b.execute("commit")


@pytest.mark.parametrize("kind", KINDS)
def test_a_denial_waits_for_nobody(
    a: Conn, conn: Conn, superuser: Conn, pg_server: Server, dbname: str, kind: str
) -> None:
    """Record and job are locked by open transactions: the answer comes from what is committed, at once."""
    claim = grant_all(a, kind)
    a.execute("begin")
    call(a, "renew_lease", token=claim["token"])  # a: a heartbeat that is not committed
    conn.execute("begin")
    conn.execute("select from pgonce.job for update")
    log_waits(superuser)
    assert ask(superuser, kind)["reason"] == "held"
    assert waits_logged(pg_server.log(), dbname) == []


def test_record_denials_is_the_one_exception(a: Conn, b: Conn, conn: Conn) -> None:
    """By choice: each denial adds a row, in the denied caller's own transaction."""
    define(conn, "key", record_denials=True)
    grant(a, "key")
    for _ in range(3):
        assert ask(b, "key")["reason"] == "held"
    assert value(conn, "select count(*) from pgonce.denial") == 3


def test_a_takeover_is_no_reading(a: Conn, b: Conn, conn: Conn) -> None:
    """The measure is not blind: the same call that is granted does take a transaction id."""
    for kind in RUNS:
        grant(a, kind)
        expire(conn, kind)
        b.execute("begin")
        grant(b, kind)
        assert value(b, "select pg_current_xact_id_if_assigned()") is not None
        b.execute("commit")
