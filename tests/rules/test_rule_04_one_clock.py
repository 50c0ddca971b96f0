"""Rule 4, one clock: the database's, as it is when the row is locked, whenever transaction or statement
began.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_the_clock_is_read_again_under_the_lock: lease: clock before the lock; key: clock before the lock;
  window: clock before the lock
- test_an_insertion_that_waited: lease: clock before the lock; clock is now(); clock is
  statement_timestamp(); key: insertion's clock before the wait
- test_renewing_gives_the_whole_ttl_or_raises: lease: clock before the lock; renew: clock before the lock;
  window: clock before the lock
- test_a_renewal_that_waited: renew: clock before the lock; clock is now(); clock is statement_timestamp()
- test_renewing_never_shortens: renew: clock before the lock; renew shortens
- test_the_lease_runs_from_the_grant: clock is now()
- test_the_rest_is_read_from_the_clock_too: clock is now()
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from tests.helpers import Clock, Conn, call, value, wait_for_lock
from tests.rules.conftest import Background, Open
from tests.rules.tools import (
    KINDS,
    RUNS,
    SHORT,
    Gate,
    ask,
    clock_time,
    define,
    expire,
    give_up,
    grant,
    grant_all,
    outcome,
    patient,
    table,
    wait_past,
)

TTL = timedelta(milliseconds=100)  # SHORT
HOUR = timedelta(hours=1)


def test_the_lease_runs_from_the_grant(a: Conn) -> None:
    """CASES 13: not from the begin of the transaction, which may be older than the ttl: now() is nowhere in
    it.
    """
    for kind in KINDS:
        a.execute("begin")
        wait_past(a, clock_time(a), after="100 milliseconds")
        before = clock_time(a)
        claim = grant(a, kind)
        after = clock_time(a)
        assert before + HOUR <= claim["expires_at"] <= after + HOUR
        a.execute("commit")


def test_the_rest_is_read_from_the_clock_too(a: Conn, conn: Conn) -> None:
    """Renewal, release, retry and the finishing times in a transaction that is older than they are."""
    for kind in KINDS:
        claim = grant(a, kind, ttl="1 minute")
        a.execute("begin")
        wait_past(a, clock_time(a), after="200 milliseconds")
        before = clock_time(a)
        until = call(a, "renew_lease", token=claim["token"], ttl="1 hour")
        assert until >= before + timedelta(hours=1)
        assert give_up(a, kind, claim["token"]) == "True"
        a.execute("commit")
        column = "finished_at" if kind in RUNS else "expires_at"
        ended: datetime = value(
            conn, f"select t.{column} from {table(kind)} t where t.token = %s", claim["token"]
        )
        assert before <= ended <= clock_time(a)


@pytest.mark.parametrize("before", ["new", "expired"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_clock_is_read_again_under_the_lock(
    conn: Conn, session: Open, background: Background, kind: str, before: str
) -> None:
    """``a`` reads the clock, is held up for longer than its ttl, and then locks: the ttl runs from the
    lock.
    """
    a = session(application_name="gated")
    if before == "expired":
        grant_all(a, kind)
        expire(conn, kind)
    gate = Gate(conn, kind)
    with gate.closed():
        late = background(ask, a, kind, ttl=SHORT)  # a: has read the clock, and stops
        wait_for_lock(conn, a.info.backend_pid)
        wait_past(conn, clock_time(conn), after="200 milliseconds")
        opened = clock_time(conn)
    claim = late.result()
    assert claim["reason"] == "granted"
    assert claim["expires_at"] >= opened + TTL


def test_an_insertion_that_waited(a: Conn, b: Conn, conn: Conn, background: Background) -> None:
    """CASES 13: ``a``'s claim waits for ``b``'s transaction, which rolls back: the ttl runs from then."""
    for function in ("_insert_run", "_take_window", "_insert_lease"):
        patient(conn, function)
    for kind in KINDS:
        b.execute("begin")
        grant(b, kind, kind)  # b: inserts the record
        late = background(ask, a, kind, kind, ttl=SHORT)  # a: waits for it
        wait_for_lock(conn, a.info.backend_pid)
        wait_past(conn, clock_time(conn), after="200 milliseconds")
        ended = clock_time(conn)
        b.execute("rollback")
        claim = late.result()
        assert claim["reason"] == "granted"
        assert claim["expires_at"] >= ended + TTL


def test_a_renewal_that_waited(a: Conn, b: Conn, conn: Conn, background: Background) -> None:
    """The heartbeat waits for the row: the ttl runs from when it got it."""
    for kind in KINDS:
        patient(conn, "renew_lease")
        claim = grant(a, kind, ttl="1 minute")
        conn.execute("begin")
        conn.execute(f"select from {table(kind)} t where t.token = %s for update", (claim["token"],))
        late = background(call, a, "renew_lease", token=claim["token"])  # a: waits
        wait_for_lock(conn, a.info.backend_pid)
        wait_past(conn, clock_time(conn), after="200 milliseconds")
        ended = clock_time(conn)
        conn.execute("rollback")
        assert late.result() >= ended + timedelta(minutes=1)


def test_renewing_never_shortens(a: Conn, clock: Clock) -> None:
    """A shorter ttl, and a clock that was set back, leave expires_at where it is."""
    for kind in KINDS:
        claim = grant(a, kind, ttl="1 hour")
        assert call(a, "renew_lease", token=claim["token"], ttl="1 minute") == claim["expires_at"]
        clock.advance(hours=-2)
        assert call(a, "renew_lease", token=claim["token"], ttl="1 hour") == claim["expires_at"]


def test_renewing_gives_the_whole_ttl_or_raises(a: Conn, conn: Conn, clock: Clock) -> None:
    """Up to max_hold it is the whole ttl; where that would pass max_hold nothing is given, and it is still
    held.
    """
    for kind in KINDS:
        more: dict[str, Any] = {}
        if kind in RUNS:
            define(conn, kind, max_hold="10 minutes")
        else:
            more["max_hold"] = "10 minutes"
        claim = grant(a, kind, ttl="4 minutes", **more)
        clock.advance(minutes=6)
        until = call(a, "renew_lease", token=claim["token"])
        assert until == clock.now + timedelta(minutes=4)
        clock.advance(microseconds=1)
        assert outcome(a, "renew_lease", token=claim["token"]) == "ON003"
        assert call(a, "assert_held", token=claim["token"]) is True


def test_no_setting_shifts_it(a: Conn) -> None:
    """Anybody could set a custom setting: none of those that other tools look at does anything."""
    for kind in KINDS:
        for name in ("pgonce.now", "pgonce.clock", "pgonce.fake_now", "pgonce.test_now", "app.now"):
            a.execute("select set_config(%s, '2001-01-01Z', false)", (name,))
        before = clock_time(a)
        assert grant(a, kind)["expires_at"] >= before + timedelta(hours=1)
