"""The client's rules, with made-up instants: each test is one mistake that a client could make."""

from __future__ import annotations

import itertools
import math

import pytest

from pgonce import Claim
from pgonce._rules import ANSWER_SECONDS, PATIENCE_SECONDS, Asking, Deadline, attempt_seconds, backoff

GRANTED = Claim(claimed=True, reason="granted", name="x", token=1)


def denied(reason: str) -> Claim:
    return Claim(claimed=False, reason=reason, name="x")


def test_a_grant_is_final() -> None:
    asking = Asking(now=100.0, wait=60.0)
    asking.send(100.0)
    assert asking.answered(GRANTED, 101.0) is None
    assert asking.granted_from == 100.0


@pytest.mark.parametrize("reason", ["done", "exhausted", "late", "skipped", "paused"])
def test_a_denial_that_cannot_change_is_final_however_long_one_would_wait(reason: str) -> None:
    assert Asking(now=100.0, wait=60.0).answered(denied(reason), 100.1) is None


@pytest.mark.parametrize("reason", ["held", "overlap", "backoff", "ahead"])
def test_a_denial_that_may_change_is_asked_anew_until_the_wait_is_over(reason: str) -> None:
    asking = Asking(now=100.0, wait=60.0)
    first = asking.nonce
    delay = asking.answered(denied(reason), 159.99)
    assert delay is not None
    assert delay <= 0.0101  # one last time exactly when it is over
    assert asking.nonce != first  # the former question has been answered
    assert asking.answered(denied(reason), 160.0) is None
    assert Asking(now=100.0).answered(denied(reason), 100.1) is None


def test_an_unknown_answer_is_asked_for_under_the_same_nonce_for_a_few_seconds() -> None:
    """With a new nonce the retry would be told ``held``, by its own earlier attempt."""
    asking = Asking(now=100.0)
    nonce = asking.nonce
    assert asking.unknown(105.0) is not None  # however long the first answer took
    assert asking.answered(denied("busy"), 105.1) is not None
    assert asking.nonce == nonce
    assert asking.unknown(105.0 + PATIENCE_SECONDS) is None


def test_busy_ends_as_a_denial_and_a_lost_answer_as_an_error() -> None:
    asking = Asking(now=100.0)
    assert asking.answered(denied("busy"), 100.0) is not None
    assert asking.answered(denied("busy"), 100.0 + PATIENCE_SECONDS) is None


def test_whoever_waits_is_patient_for_as_long() -> None:
    asking = Asking(now=100.0, wait=60.0)
    assert asking.unknown(101.0) is not None
    assert asking.answered(denied("busy"), 159.0) is not None
    assert asking.unknown(160.0) is None


def test_a_grant_counts_from_the_first_request_that_may_have_brought_it_about() -> None:
    """max_hold may keep the database from giving the retry more time than the lost answer had."""
    asking = Asking(now=100.0)
    asking.send(100.0)
    asking.answered(denied("busy"), 100.5)  # this one has brought nothing about
    asking.send(101.0)
    asking.unknown(102.0)
    asking.send(103.0)
    assert asking.answered(GRANTED, 103.1) is None
    assert asking.granted_from == 101.0


def test_after_a_definite_denial_earlier_doubts_are_over() -> None:
    asking = Asking(now=100.0, wait=60.0)
    asking.send(100.0)
    asking.unknown(101.0)
    asking.send(102.0)
    asking.answered(denied("held"), 102.1)
    asking.send(103.0)
    assert asking.granted_from == 103.0


def test_whoever_waits_asks_often_at_first() -> None:
    """At most every 500 ms, and every 2 s after 30 s. Seen to fail: every 2 s after four seconds."""
    asking = Asking(now=100.0, wait=600.0)
    now, delays = 100.0, []
    while now < 220.0:
        asking.send(now)
        delay = asking.answered(denied("held"), now)
        assert delay is not None
        delays.append((now - 100.0, delay))
        now += delay
    assert max(delay for waited, delay in delays if waited < 30.0) <= 0.5
    late = [delay for waited, delay in delays if waited >= 30.0]
    assert min(late) >= 1.0
    assert 1.5 < max(late) <= 2.0


def test_a_request_is_cut_off() -> None:
    asking = Asking(now=100.0)
    assert asking.send(100.0) == ANSWER_SECONDS
    asking.unknown(110.0)
    assert asking.send(110.5) == PATIENCE_SECONDS - 0.5
    assert asking.send(112.9) == 1.0


def test_the_deadline_counts_from_before_the_request_and_leaves_a_margin() -> None:
    """Counted from the answer, a reply that is a second late would make two holders for that second."""
    deadline = Deadline(sent=100.0, ttl=60.0)
    assert deadline.ends_at == 155.0
    assert deadline.beat_at == 120.0
    deadline.renewed(sent=120.0, now=121.0)
    assert deadline.ends_at == 175.0
    assert deadline.beat_at == 140.0
    assert Deadline(sent=100.0, ttl=1.0).ends_at == pytest.approx(100.9)


def test_lost_is_lost_also_when_an_answer_comes_after_all() -> None:
    deadline = Deadline(sent=100.0, ttl=60.0)
    assert deadline.held(154.9)
    deadline.renewed(sent=154.0, now=155.0)
    assert not deadline.held(155.0)
    assert not deadline.held(154.0)
    assert deadline.lost is not None


def test_the_first_reason_for_the_loss_stays() -> None:
    deadline = Deadline(sent=100.0, ttl=60.0)
    deadline.give_up("taken over")
    assert not deadline.held(100.0)
    assert not deadline.held(200.0)
    assert deadline.lost == "taken over"


def test_at_max_hold_there_are_no_more_beats_and_the_end_stays() -> None:
    deadline = Deadline(sent=100.0, ttl=60.0)
    deadline.at_limit()
    assert deadline.beat_at == math.inf
    assert deadline.held(154.9)
    assert not deadline.held(155.0)
    assert deadline.lost == "max_hold is reached"


@pytest.mark.parametrize(
    ("left", "seconds"),
    [(3600.0, 10.0), (20.0, 10.0), (16.0, 8.0), (4.0, 2.0), (3.0, 2.0), (1.5, 1.5), (-1.0, 0.0)],
)
def test_a_stuck_request_leaves_time_for_another(left: float, seconds: float) -> None:
    assert attempt_seconds(left) == seconds


def test_backoff_doubles_within_its_bounds_and_is_jittered() -> None:
    delays = list(itertools.islice(backoff(1.0, 4.0), 50))
    assert 0.5 <= delays[0] <= 1.0
    assert 1.0 <= delays[1] <= 2.0
    assert all(2.0 <= delay <= 4.0 for delay in delays[2:])
    assert len(set(delays)) > 40
