"""release_lease: free at once (min_hold: test_acquire_lease). False, never an error, when nothing is held."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.functions.holding import NEVER_GRANTED, granted, hold
from tests.functions.refusals import assert_refused, tables
from tests.helpers import Clock, Conn, call, value

Connect = Callable[..., Conn]


def release(conn: Conn, token: int | None) -> bool:
    answer: bool = call(conn, "release_lease", token=token)
    return answer


def test_it_frees_the_lease(conn: Conn, connect: Connect, clock: Clock) -> None:
    token = granted(conn, "lease")["token"]
    assert hold(connect(), "lease")["reason"] == "held"
    assert release(conn, token) is True
    assert value(conn, "select count(*) from pgonce.leases") == 0
    assert hold(connect(), "lease")["reason"] == "granted"


def test_a_second_time_it_is_false(conn: Conn, connect: Connect, clock: Clock) -> None:
    """And takes nothing from whoever holds it by then."""
    token = granted(conn, "lease")["token"]
    release(conn, token)
    assert release(conn, token) is False
    other = granted(connect(), "lease")["token"]
    assert release(conn, token) is False
    assert call(conn, "assert_held", token=other) is True


def test_late_when_nobody_came(conn: Conn, clock: Clock) -> None:
    token = granted(conn, "lease")["token"]
    clock.advance(hours=1)
    assert release(conn, token) is True
    assert release(conn, token) is False


def test_taken_over(conn: Conn, connect: Connect, clock: Clock) -> None:
    token = granted(conn, "lease")["token"]
    clock.advance(minutes=10)
    other = granted(connect(), "lease")["token"]
    before = tables(conn)
    assert release(conn, token) is False
    assert tables(conn) == before
    assert call(conn, "assert_held", token=other) is True


def test_min_hold_is_not_prolonged(conn: Conn, clock: Clock) -> None:
    token = call(conn, "acquire_lease", name="thing", ttl="10 minutes", min_hold="1 minute")["token"]
    clock.advance(minutes=1)
    assert release(conn, token) is True
    assert hold(conn, "lease")["reason"] == "granted"


def test_one_slot_of_several(conn: Conn, clock: Clock) -> None:
    tokens = [call(conn, "acquire_lease", name="thing", ttl="1 minute", slots=2)["token"] for _ in range(2)]
    assert release(conn, tokens[0]) is True
    assert call(conn, "assert_held", token=tokens[1]) is True
    assert call(conn, "acquire_lease", name="thing", ttl="1 minute", slots=2)["key"] == "1"


def test_whose_token_it_is(conn: Conn, connect: Connect, clock: Clock) -> None:
    """The role's it was granted to, and the schema owner's."""
    worker, other = connect("worker"), connect("worker2")
    token = granted(worker, "lease")["token"]
    assert release(other, token) is False
    assert call(worker, "assert_held", token=token) is True
    assert release(connect("worker"), token) is True
    token = granted(worker, "lease")["token"]
    assert release(conn, token) is True


def test_a_token_that_was_never_granted(conn: Conn, clock: Clock) -> None:
    granted(conn, "lease")
    before = tables(conn)
    for token in NEVER_GRANTED:
        assert release(conn, token) is False
    assert tables(conn) == before


@pytest.mark.parametrize("kind", ["operation", "window"])
def test_refusals(conn: Conn, clock: Clock, kind: str) -> None:
    """A run is finished, not released: running, expired, failed or done."""
    lease, token = granted(conn, "lease")["token"], granted(conn, kind)["token"]
    wrong = ("token", token, f"token {token} is that of a run", "mark_failed")
    assert_refused(conn, "release_lease", {"token": lease}, [wrong])
    clock.advance(hours=1)
    assert_refused(conn, "release_lease", {"token": lease}, [wrong])
    call(conn, "mark_failed", token=token, retry_in="0")
    assert_refused(conn, "release_lease", {"token": lease}, [wrong])
    again = granted(conn, kind)["token"]
    call(conn, "mark_done", token=again)
    assert_refused(
        conn,
        "release_lease",
        {"token": lease},
        [("token", again, f"token {again} is that of a run", "mark_failed")],
    )
