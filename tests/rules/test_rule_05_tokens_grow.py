"""Rule 5, tokens only grow: for one job, lease name or operation, whatever happens between two grants.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_with_a_clock_that_runs_stands_still_or_goes_back: key: takeover keeps the token; window: takeover
  keeps the token; lease: takeover keeps the token; tokens without a floor
- test_through_takeovers: key: takeover keeps the token; window: takeover keeps the token; lease: takeover
  keeps the token
- test_the_sequence_starts_again: key: takeover keeps the token; window: takeover keeps the token; lease:
  takeover keeps the token; tokens are a row counter
- test_unique_in_the_database: tokens are the sequence; tokens without the sequence
- test_from_window_to_window: tokens without a floor; window: floor of the run, not the job
- test_from_slot_to_slot: tokens without a floor; lease: floor of the slot, not the name
- test_from_slot_to_slot_with_an_old_snapshot: lease: an old snapshot's floor; release deletes the row
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.helpers import Clock, Conn
from tests.rules.conftest import Open
from tests.rules.tools import (
    KINDS,
    STRICT,
    W1,
    W2,
    W3,
    ask,
    clock_time,
    define,
    finish,
    give_up,
    grant,
    grant_all,
    snapshot,
    wait_past,
)


def assert_growing(tokens: list[int]) -> None:
    assert all(earlier < later for earlier, later in itertools.pairwise(tokens)), tokens
    assert tokens[-1] < 2**53


def again_and_again(a: Conn, kind: str, between: Callable[[], object]) -> list[int]:
    """Tokens of four grants, each given up after ``between``."""
    tokens = []
    for _ in range(4):
        tokens.append(int(grant(a, kind, ttl="1 minute")["token"]))
        between()
        assert give_up(a, kind, tokens[-1]) == "True"
    return tokens


def test_with_a_clock_that_runs_stands_still_or_goes_back(a: Conn, conn: Conn, clock: Clock) -> None:
    """Each time the record itself remembers the floor."""
    for kind in KINDS:
        define(conn, kind, max_attempts=100)
        tokens = again_and_again(a, kind, lambda: clock.advance(seconds=1))
        tokens += again_and_again(a, kind, lambda: None)
        tokens += again_and_again(a, kind, lambda: clock.advance(hours=-1))
        tokens += again_and_again(a, kind, lambda: None)
        assert_growing(tokens)


def test_through_takeovers(a: Conn, conn: Conn, clock: Clock) -> None:
    for kind in KINDS:
        define(conn, kind, max_attempts=100)
        tokens = []
        for _ in range(4):
            tokens.append(grant_all(a, kind, ttl="1 minute")["token"])
            clock.advance(minutes=1)
        assert_growing(tokens)


def test_from_window_to_window(a: Conn, clock: Clock) -> None:
    """The floor is the job's, not the window's: also when the clock goes back between two windows."""
    tokens = []
    for start in (W1, W2, W3):
        tokens.append(grant(a, "window", window_start=start)["token"])
        assert finish(a, "window", tokens[-1]) == "True"
        clock.advance(hours=-1)
    assert_growing(tokens)


def test_from_slot_to_slot(a: Conn, clock: Clock) -> None:
    """The floor is the name's, not the slot's."""
    tokens = []
    for _ in range(3):
        tokens.append(grant(a, "slots")["token"])
        clock.advance(hours=-1)
    assert_growing(tokens)


@pytest.mark.parametrize("isolation", STRICT)
def test_from_slot_to_slot_with_an_old_snapshot(a: Conn, b: Conn, clock: Clock, isolation: str) -> None:
    """``b`` cannot see the grants that ``a`` committed after ``b``'s snapshot: 40001, or a greater token all
    the same.

    Seen to fail: the floor was read from the other slots' rows, which ``b`` neither locked nor wrote.
    """
    first, second, third = (grant(a, "slots")["token"] for _ in range(3))
    assert finish(a, "slots", second) == finish(a, "slots", third) == "True"
    snapshot(b, isolation)  # b: sees slot 1 held, 2 and 3 free
    for _ in range(2):
        assert finish(a, "slots", first) == "True"
        first = grant(a, "slots")["token"]  # a: slot 1 again
    late = ask(b, "slots")
    b.execute("commit")
    assert late["reason"] == "40001" or late["token"] > first


def test_deleted_and_inserted_again(a: Conn, conn: Conn) -> None:
    """CASES 29 after a prune: the record is gone, and with it the floor; the clock is past the lost
    grant's.
    """
    for kind in KINDS:
        tokens = []
        for _ in range(3):
            tokens.append(grant(a, kind)["token"])
            for name in ("run", "lease", "job"):
                conn.execute(f"delete from pgonce.{name}")
            wait_past(conn, clock_time(conn), after="1 millisecond")
        assert_growing(tokens)


def test_the_sequence_starts_again(a: Conn, conn: Conn) -> None:
    """As after a failover to a standby that lagged, or in a restored backup: the tokens come from the
    clock.
    """
    for kind in KINDS:
        define(conn, kind, max_attempts=100)
        tokens = []
        for _ in range(4):
            tokens.append(grant(a, kind)["token"])
            assert give_up(a, kind, tokens[-1]) == "True"
            conn.execute("alter sequence pgonce.token_seq restart")
        assert_growing(tokens)


def test_unique_in_the_database(conn: Conn, session: Open) -> None:
    """8 sessions take 25 windows, keys and leases each, as fast as they can: no token twice, in no table."""

    def take(number: int) -> list[int]:
        one = session()
        return [
            grant(one, kind, f"{number} {n}")["token"]
            for n in range(25)
            for kind in ("window", "key", "lease")
        ]

    with ThreadPoolExecutor(8) as pool:
        tokens = list(itertools.chain.from_iterable(pool.map(take, range(8))))
    assert len(set(tokens)) == len(tokens) == 600
    assert max(tokens) < 2**53
