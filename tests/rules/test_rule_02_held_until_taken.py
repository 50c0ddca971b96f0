"""Rule 2, held until taken: after expires_at and not before; then the old token holds nothing, for ever.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_the_old_token_holds_nothing_for_ever: key: takeover keeps the token; window: takeover keeps the
  token; lease: takeover keeps the token
- test_a_call_that_waits_behind_a_takeover: key: takeover keeps the token; window: takeover keeps the
  token; lease: takeover keeps the token
- test_nobody_takes_over_before_it_expires: lease: no recheck after the lock; tokens without the sequence;
  held one instant too short
- test_nobody_came: lease: no recheck after the lock
- test_an_excluding_grant_burns_the_expired_window: tokens without the sequence
- test_nobody_has_the_token_of_a_burnt_run: tokens without the sequence; mark_done, mark_failed or assert_held
  of a burnt run's token
- test_a_burnt_window_stays_claimable: tokens without the sequence
- test_replace_takes_at_once: tokens without the sequence
- test_replace_never_replaces_a_newer_window: window: older replaces newer
- test_what_has_ended_is_never_revived: renew revives what was released; renew revives what has ended
"""

from __future__ import annotations

from datetime import timedelta

import pytest

from tests.helpers import Clock, Conn, call, value, wait_for_lock
from tests.rules.conftest import Background
from tests.rules.tools import (
    KINDS,
    NOTHING_HELD,
    W1,
    W2,
    answer,
    ask,
    define,
    expire,
    finish,
    give_up,
    grant,
    grant_all,
    holding_calls,
    outcome,
    patient,
    reason,
    told,
)


def test_nobody_takes_over_before_it_expires(a: Conn, b: Conn, clock: Clock) -> None:
    for kind in KINDS:
        claim = grant_all(a, kind, ttl="5 minutes")
        clock.set(claim["expires_at"] - timedelta(microseconds=1))
        assert reason(b, kind) == "held"
        assert call(a, "assert_held", token=claim["token"]) is True
        clock.set(claim["expires_at"])
        assert reason(b, kind) == "granted"


def test_the_old_token_holds_nothing_for_ever(a: Conn, b: Conn, conn: Conn) -> None:
    """CASES 10, 29, 30: not while the successor works, not when it has ended, not under those who come
    later.
    """
    for kind in KINDS:
        old = grant(a, kind)["token"]
        expire(conn, kind)
        new = grant(b, kind)["token"]
        assert told(a, old) == NOTHING_HELD
        assert call(b, "renew_lease", token=new) is not None
        assert give_up(b, kind, new) == "True"
        assert told(a, old) == NOTHING_HELD
        newer = grant(a, kind)["token"]  # even the same session's next grant does not help the old token
        assert told(a, old) == NOTHING_HELD
        assert told(b, new)["renew_lease"] == "ON001"
        assert finish(a, kind, newer) == "True"
        assert told(a, old) == NOTHING_HELD


def test_nobody_came(a: Conn, b: Conn, clock: Clock) -> None:
    """Late by days, but nobody took over: the holder goes on, and ends well."""
    for kind in KINDS:
        claim = grant_all(a, kind, ttl="1 minute")
        clock.advance(days=3)
        assert call(a, "assert_held", token=claim["token"]) is True
        assert call(a, "renew_lease", token=claim["token"]) == clock.now + timedelta(minutes=1)
        assert reason(b, kind) == ("granted" if kind == "slots" else "held")  # the two other slots did expire
        clock.advance(days=3)
        assert finish(a, kind, claim["token"]) == "True"


def test_what_has_ended_is_never_revived(a: Conn) -> None:
    """CASES 17: a heartbeat that comes after the end, when nobody else has come yet."""
    for kind in KINDS:
        claim = grant(a, kind)
        assert give_up(a, kind, claim["token"]) == "True"
        assert outcome(a, "renew_lease", token=claim["token"]) == "ON001"
        assert outcome(a, "assert_held", token=claim["token"]) == "ON001"
        assert reason(a, kind) == "granted"


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_call_that_waits_behind_a_takeover(
    a: Conn, b: Conn, conn: Conn, background: Background, kind: str, end: str
) -> None:
    """The old holder's call comes while the takeover is not committed: it waits, and then tells the truth."""
    for function in holding_calls(kind):
        patient(conn, function)
        claim = grant_all(a, kind, function)
        expire(conn, kind, function)
        b.execute("begin")
        grant_all(b, kind, function)  # b: takes over, and does not commit yet
        late = background(outcome, a, function, token=claim["token"])  # a: waits for b
        wait_for_lock(conn, a.info.backend_pid)
        b.execute(end)
        if end == "commit":
            assert late.result() == NOTHING_HELD[function]
        else:
            assert late.result() not in ("ON001", "False")


def test_an_excluding_grant_burns_the_expired_window(a: Conn, b: Conn, conn: Conn) -> None:
    """forbid: nobody took the old window itself, but another window was granted, which excludes it."""
    old = grant(a, "window")
    expire(conn, "window")
    grant(b, "window", window_start=W2)
    assert told(a, old["token"]) == NOTHING_HELD
    again = ask(a, "window")
    assert again["reason"] == "overlap"


def test_nobody_has_the_token_of_a_burnt_run(a: Conn, b: Conn, conn: Conn) -> None:
    """Not even who reads it in the view: renewed with it, the burnt run would live again beside the one that
    excludes it.

    Seen to fail: the new token was granted to nobody, but the role stayed, and for it the token worked.
    """
    grant(a, "window")
    expire(conn, "window")
    grant(b, "window", window_start=W2)
    assert value(conn, "select token from pgonce.runs where expired") is None
    burnt = value(conn, "select token from pgonce.run where burnt")
    nothing = {**NOTHING_HELD, "release_lease": "22023"}  # a run's token
    assert told(a, burnt) == told(conn, burnt) == nothing


def test_a_burnt_window_stays_claimable(a: Conn, b: Conn, conn: Conn) -> None:
    """CASES 9: it is granted again, attempt 2, when what excluded it has ended; the burnt token never works
    again.
    """
    old = grant(a, "window")
    expire(conn, "window")
    newer = grant(b, "window", window_start=W2)
    assert finish(b, "window", newer["token"]) == "True"
    again = grant(b, "window")
    assert again["attempt"] == 2
    assert told(a, old["token"]) == NOTHING_HELD


def test_replace_takes_at_once(a: Conn, b: Conn, conn: Conn) -> None:
    """replace: the newer window's grant ends the older run though it has not expired; not the other way
    round.
    """
    define(conn, "window", overlap="replace")
    older = grant(a, "window", window_start=W1)
    newer = grant(b, "window", window_start=W2)
    assert told(a, older["token"]) == NOTHING_HELD
    assert reason(a, "window", window_start=W1) == "skipped"
    assert call(b, "assert_held", token=newer["token"]) is True


def test_replace_never_replaces_a_newer_window(a: Conn, b: Conn, conn: Conn) -> None:
    define(conn, "window", overlap="replace")
    newer = grant(a, "window", window_start=W2)
    assert reason(b, "window", window_start=W1) == "overlap"
    assert call(a, "assert_held", token=newer["token"]) is True


def test_another_number_of_slots_burns_the_expired_holders(a: Conn, b: Conn, conn: Conn) -> None:
    """Three expired holders, and the lease is taken as one of two: all three are excluded.

    Seen to fail with: slots: expired holder not burnt.
    """
    old = [grant(a, "slots")["token"] for _ in range(3)]
    expire(conn, "slots")
    grant(b, "slots", slots=2)
    assert [told(a, token) for token in old] == [NOTHING_HELD] * 3


def test_allow_excludes_nothing(a: Conn, b: Conn, conn: Conn) -> None:
    """allow: two windows run side by side, and the expired one is still its holder's."""
    define(conn, "window", overlap="allow")
    old = grant(a, "window", window_start=W1)
    expire(conn, "window")
    grant(b, "window", window_start=W2)
    assert call(a, "renew_lease", token=old["token"], ttl="1 hour") is not None
    assert answer(a, "mark_done", token=old["token"])["reason"] == "True"
