"""acquire_lease: who works now, one or so many at a time. (Races and open transactions: tests/rules.)

The lease is "deploy", with a ttl of ten minutes; it is noon.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest

from tests.functions.holding import after, sqlstate
from tests.functions.refusals import assert_refused, bad_durations, bad_names
from tests.helpers import Clock, Conn, Row, call, value

Connect = Callable[..., Conn]


def acquire(conn: Conn, **arguments: Any) -> Row:
    answer: Row = call(conn, "acquire_lease", **{"name": "deploy", "ttl": "10 minutes", **arguments})
    return answer


def grant(conn: Conn, **arguments: Any) -> int:
    """Acquire what can be acquired; its token."""
    answer = acquire(conn, **arguments)
    assert answer["reason"] == "granted", answer
    token: int = answer["token"]
    return token


def release(conn: Conn, token: int) -> None:
    assert call(conn, "release_lease", token=token) is True


def reason(conn: Conn, **arguments: Any) -> str:
    answer: str = acquire(conn, **arguments)["reason"]
    return answer


# --- The answer.


def test_a_grant_tells_all(conn: Conn, clock: Clock) -> None:
    answer = acquire(conn, owner="host-a")
    token = answer["token"]
    assert isinstance(token, int)
    assert 0 < token < 2**53
    assert answer == {
        "claimed": True,
        "reason": "granted",
        "name": "deploy",
        "key": "1",
        "token": token,
        "attempt": None,
        "owner": "host-a",
        "expires_at": after(minutes=10),
        "window_start": None,
        "window_end": None,
        "retry_at": None,
        "result": None,
    }


def test_held_tells_of_the_holder(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Case 11: also when both say they are the same host: the label is never identity."""
    grant(conn, owner="host-a")
    clock.advance(minutes=1)
    assert acquire(connect(), owner="host-a") == {
        "claimed": False,
        "reason": "held",
        "name": "deploy",
        "key": "1",
        "token": None,
        "attempt": None,
        "owner": "host-a",
        "expires_at": after(minutes=10),
        "window_start": None,
        "window_end": None,
        "retry_at": after(minutes=10),
        "result": None,
    }


def test_the_owner_is_made_from_application_name_and_address(connect: Connect, clock: Clock) -> None:
    assert acquire(connect(application_name="deployer"))["owner"] == "deployer@127.0.0.1"


def test_names_are_apart(conn: Conn, clock: Clock) -> None:
    grant(conn)
    grant(conn, name="Deploy")
    assert reason(conn) == "held"


# --- How long.


@pytest.mark.parametrize(
    ("ttl", "length"), [("100 milliseconds", timedelta(seconds=0.1)), ("366 days", timedelta(days=366))]
)
def test_ttl(conn: Conn, clock: Clock, ttl: str, length: timedelta) -> None:
    assert acquire(conn, ttl=ttl)["expires_at"] == after() + length


def test_a_day_is_24_hours(connect: Connect, clock: Clock) -> None:
    """Whatever the session's zone: clocks go forward in the night to 2026-03-29 in Berlin."""
    clock.set("2026-03-28T12:00:00Z")
    berlin = connect(options="-c TimeZone=Europe/Berlin")
    answer = acquire(berlin, ttl="1 hour", min_hold="1 day", max_hold="1 day")
    assert answer["expires_at"] == clock.now + timedelta(hours=24)
    assert sqlstate(berlin, "renew_lease", token=answer["token"], ttl="1 day") is None
    clock.advance(microseconds=1)
    assert sqlstate(berlin, "renew_lease", token=answer["token"], ttl="1 day") == "ON003"


def test_the_ttl_runs_from_the_grant(connect: Connect, clock: Clock) -> None:
    """Case 13: not from the start of the transaction, opened long before."""
    conn = connect(autocommit=False)
    assert reason(conn, name="other") == "granted"
    clock.advance(seconds=2.5)
    assert acquire(conn, ttl="2 seconds")["expires_at"] == after(seconds=4.5)


def test_held_until_taken(conn: Conn, connect: Connect, clock: Clock) -> None:
    first = grant(conn)
    clock.set(after(minutes=9, seconds=59.999999))
    assert reason(connect()) == "held"
    clock.set(after(minutes=10))
    assert call(conn, "assert_held", token=first) is True
    second = acquire(connect())
    assert (second["reason"], second["expires_at"]) == ("granted", after(minutes=20))
    assert second["token"] > first
    assert sqlstate(conn, "assert_held", token=first) == "ON001"


def test_a_released_lease_is_free_at_once(conn: Conn, connect: Connect, clock: Clock) -> None:
    first = grant(conn, owner="host-a")
    release(conn, first)
    second = acquire(connect(), owner="host-b")
    assert (second["reason"], second["owner"]) == ("granted", "host-b")
    assert second["token"] > first


# --- min_hold.


def test_min_hold_keeps_it_though_it_was_released(conn: Conn, connect: Connect, clock: Clock) -> None:
    first = grant(conn, ttl="1 minute", min_hold="5 minutes", owner="host-a")
    release(conn, first)
    clock.set(after(minutes=4, seconds=59.999999))
    answer = acquire(connect())
    assert (answer["reason"], answer["owner"], answer["retry_at"]) == ("held", "host-a", after(minutes=5))
    assert sqlstate(conn, "assert_held", token=first) == "ON001"
    clock.set(after(minutes=5))
    assert grant(connect()) > first


@pytest.mark.parametrize(("ttl", "until"), [("1 minute", 5), ("7 minutes", 7)])
def test_it_is_held_for_the_greater_of_ttl_and_min_hold(
    conn: Conn, clock: Clock, ttl: str, until: int
) -> None:
    assert acquire(conn, ttl=ttl, min_hold="5 minutes")["expires_at"] == after(minutes=until)


@pytest.mark.parametrize("min_hold", [None, "0", "5 minutes"])
def test_released_after_min_hold_it_is_free(conn: Conn, clock: Clock, min_hold: str | None) -> None:
    first = grant(conn, min_hold=min_hold)
    clock.advance(minutes=6)
    release(conn, first)
    assert reason(conn) == "granted"


def test_the_next_grant_has_its_own_min_hold(conn: Conn, clock: Clock) -> None:
    release(conn, grant(conn, min_hold="1 minute"))
    clock.advance(minutes=1)
    release(conn, grant(conn))
    assert reason(conn) == "granted"


# --- max_hold. (What it means for renewals: test_renew_lease.)


def test_a_ttl_up_to_max_hold(conn: Conn, clock: Clock) -> None:
    assert acquire(conn, ttl="10 minutes", max_hold="10 minutes")["expires_at"] == after(minutes=10)


@pytest.mark.parametrize("max_hold", [None, "0"])
def test_no_max_hold(conn: Conn, clock: Clock, max_hold: str | None) -> None:
    token = grant(conn, max_hold=max_hold)
    clock.advance(days=365)
    assert call(conn, "renew_lease", token=token, ttl="366 days") == after(days=731)


# --- Slots.


def test_so_many_at_a_time(conn: Conn, connect: Connect, clock: Clock) -> None:
    answers = []
    for minutes in (3, 1, 2):
        answers.append(acquire(connect(), slots=3, ttl=f"{minutes} minutes", owner=f"host-{minutes}"))
    assert [answer["reason"] for answer in answers] == ["granted"] * 3
    assert [answer["key"] for answer in answers] == ["1", "2", "3"]
    assert len({answer["token"] for answer in answers}) == 3
    denied = acquire(conn, slots=3)
    assert (denied["reason"], denied["key"], denied["owner"]) == ("held", "2", "host-1")
    assert denied["expires_at"] == denied["retry_at"] == after(minutes=1)
    clock.set(denied["retry_at"])
    answer = acquire(conn, slots=3)
    assert (answer["reason"], answer["key"]) == ("granted", "2")
    assert sqlstate(conn, "assert_held", token=answers[1]["token"]) == "ON001"
    assert [call(conn, "assert_held", token=answers[n]["token"]) for n in (0, 2)] == [True, True]
    release(conn, answers[2]["token"])
    assert acquire(conn, slots=3)["key"] == "3"


def test_tokens_grow_from_slot_to_slot(conn: Conn, clock: Clock) -> None:
    """Greater than any granted before for the lease's name; the clock stands still."""
    tokens = [grant(conn, slots=5) for _ in range(5)]
    for token in tokens[::-1]:
        release(conn, token)
    tokens += [grant(conn, slots=5) for _ in range(5)]
    assert tokens == sorted(set(tokens))


def test_a_thousand_slots(conn: Conn, clock: Clock) -> None:
    assert [acquire(conn, slots=1000)["key"] for _ in range(3)] == ["1", "2", "3"]


@pytest.mark.parametrize(("before", "now"), [(1, 3), (3, 1), (3, None), (None, 3), (3, 5), (5, 3)])
def test_another_number_of_slots_while_one_is_held(
    conn: Conn, connect: Connect, clock: Clock, before: int | None, now: int | None
) -> None:
    token = grant(conn, slots=before)
    wrong = (
        "slots",
        now,
        f'slots {now or 1} differs from the {before or 1} of lease "deploy"',
        "same number of slots",
    )
    clock.set(after(minutes=9, seconds=59.999999))
    valid = {"name": "deploy", "ttl": "1 minute", "slots": before}
    assert_refused(conn, "acquire_lease", valid, [wrong])
    release(conn, token)
    answers = [acquire(connect(), slots=now)["reason"] for _ in range((now or 1) + 1)]
    assert answers == ["granted"] * (now or 1) + ["held"]


@pytest.mark.parametrize("held", [1, 2, 3])
def test_any_held_slot_keeps_the_number(conn: Conn, clock: Clock, held: int) -> None:
    tokens = [grant(conn, slots=3) for _ in range(3)]
    for n in {1, 2, 3} - {held}:
        release(conn, tokens[n - 1])
    assert sqlstate(conn, "acquire_lease", name="deploy", ttl="1 minute", slots=2) == "22023"
    assert call(conn, "assert_held", token=tokens[held - 1]) is True


def test_another_number_of_slots_burns_what_has_expired(conn: Conn, connect: Connect, clock: Clock) -> None:
    """Each of its rows is rewritten, so an expired holder of a slot that is no more holds nothing."""
    tokens = [grant(conn, slots=3) for _ in range(3)]
    clock.advance(minutes=10)
    new = grant(connect(), slots=2)
    assert new > max(tokens)
    for token in tokens:
        for function in ("renew_lease", "assert_held"):
            assert sqlstate(conn, function, token=token) == "ON001"
        assert call(conn, "release_lease", token=token) is False
    assert (reason(conn, slots=2), reason(conn, slots=2)) == ("granted", "held")


def test_tokens_grow_through_other_numbers_of_slots(conn: Conn, clock: Clock) -> None:
    tokens = []
    for slots in (3, 1, 5, 2, 1):
        tokens += [grant(conn, slots=slots) for _ in range(slots)]
        assert reason(conn, slots=slots) == "held"
        for token in tokens[-slots:]:
            release(conn, token)
    assert tokens == sorted(set(tokens))


def test_min_hold_keeps_the_number_of_slots(conn: Conn, clock: Clock) -> None:
    """A slot that is not free is held, though its holder released it."""
    release(conn, grant(conn, slots=2, min_hold="5 minutes"))
    assert sqlstate(conn, "acquire_lease", name="deploy", ttl="1 minute") == "22023"
    clock.advance(minutes=5)
    assert reason(conn) == "granted"


# --- The same question again.


@pytest.mark.parametrize("slots", [1, 3])
def test_the_same_question_brings_the_same_grant_renewed(
    conn: Conn, connect: Connect, clock: Clock, slots: int
) -> None:
    nonce = uuid4()
    first = acquire(conn, nonce=nonce, slots=slots, owner="host-a")
    clock.advance(minutes=4)
    again = acquire(connect(), nonce=nonce, slots=slots, owner="host-a")
    assert again == {**first, "expires_at": after(minutes=14)}
    assert acquire(connect(), nonce=nonce, slots=slots, ttl="1 second") == again
    assert value(conn, "select count(*) from pgonce.leases") == 1


def test_a_replay_after_expiry_when_nobody_came(conn: Conn, clock: Clock) -> None:
    nonce = uuid4()
    first = acquire(conn, nonce=nonce)
    clock.advance(hours=1)
    assert acquire(conn, nonce=nonce) == {**first, "expires_at": after(hours=1, minutes=10)}


@pytest.mark.parametrize("slots", [1, 3])
def test_a_replay_up_to_max_hold(conn: Conn, clock: Clock, slots: int) -> None:
    nonce = uuid4()
    first = acquire(conn, nonce=nonce, max_hold="15 minutes", slots=slots)
    for minutes in (6, 14):
        clock.set(after(minutes=minutes))
        again = acquire(conn, nonce=nonce, max_hold="15 minutes", slots=slots)
        assert again == {**first, "expires_at": after(minutes=15)}
    clock.set(after(minutes=15))
    anew = acquire(conn, nonce=nonce, max_hold="15 minutes", slots=slots)
    assert (anew["reason"], anew["key"]) == ("granted", "1")
    assert anew["token"] > first["token"]


def test_a_replay_within_min_hold_never_shortens(conn: Conn, clock: Clock) -> None:
    nonce = uuid4()
    first = acquire(conn, nonce=nonce, ttl="1 minute", min_hold="5 minutes")
    clock.advance(minutes=1)
    assert acquire(conn, nonce=nonce, ttl="1 minute", min_hold="5 minutes") == first


@pytest.mark.parametrize("slots", [1, 3])
def test_the_question_of_a_released_lease_is_a_new_one(conn: Conn, clock: Clock, slots: int) -> None:
    nonce = uuid4()
    first = grant(conn, nonce=nonce, slots=slots)
    release(conn, first)
    second = grant(conn, nonce=nonce, slots=slots)
    assert second > first
    assert grant(conn, nonce=nonce, slots=slots) == second


def test_the_question_of_a_lease_taken_over_is_a_new_one(conn: Conn, connect: Connect, clock: Clock) -> None:
    nonce = uuid4()
    grant(conn, nonce=nonce)
    clock.advance(minutes=10)
    grant(connect())
    assert reason(conn, nonce=nonce) == "held"


def test_a_released_slot_that_min_hold_keeps_is_no_answer(conn: Conn, clock: Clock) -> None:
    """The grant has ended, so the question counts as if it had no nonce: another slot is free.

    Seen to fail (busy): the released row keeps the nonce, and lease_nonce_key forbids it in a second row.
    """
    nonce = uuid4()
    release(conn, grant(conn, nonce=nonce, slots=2, min_hold="5 minutes"))
    answer = acquire(conn, nonce=nonce, slots=2)
    assert (answer["reason"], answer["key"]) == ("granted", "2")


def test_somebody_elses_question(connect: Connect, clock: Clock) -> None:
    """A nonce belongs to the role and to the name it was asked for."""
    nonce = uuid4()
    worker = connect("worker")
    grant(worker, nonce=nonce)
    assert reason(connect("worker2"), nonce=nonce) == "held"
    assert acquire(worker, name="other", nonce=nonce)["name"] == "other"


def test_somebody_elses_question_takes_no_slot_away(connect: Connect, clock: Clock) -> None:
    """Seen to fail (busy): lease_nonce_key is unique per name, whatever the role."""
    nonce = uuid4()
    first = acquire(connect("worker"), nonce=nonce, slots=2)
    second = acquire(connect("worker2"), nonce=nonce, slots=2)
    assert (second["reason"], second["key"]) == ("granted", "2")
    assert second["token"] > first["token"]
    assert acquire(connect("worker"), nonce=nonce, slots=2)["token"] == first["token"]
    assert acquire(connect("worker2"), nonce=nonce, slots=2)["token"] == second["token"]


def test_a_question_is_answered_before_slots_are_counted(conn: Conn, clock: Clock) -> None:
    """Asked by the old program with one slot, the answer lost, asked again after a change of mind."""
    nonce = uuid4()
    first = grant(conn, nonce=nonce)
    assert grant(conn, nonce=nonce, slots=2) == first


# --- Bad input.

VALID = {
    "name": "deploy",
    "ttl": "1 minute",
    "owner": "host-a",
    "slots": 2,
    "max_hold": "1 hour",
    "min_hold": "1 second",
}


@pytest.mark.parametrize("state", ["new", "free", "held"])
def test_refusals(conn: Conn, clock: Clock, state: str) -> None:
    if state != "new":
        tokens = [grant(conn, slots=2) for _ in range(2)]
        if state == "free":
            release(conn, tokens[0])
    assert_refused(
        conn,
        "acquire_lease",
        VALID,
        [
            *bad_names("name"),
            *bad_names("owner", required=False),
            *bad_durations(conn, "ttl", zero=False, required=True),
            *bad_durations(conn, "max_hold", zero=True),
            *bad_durations(conn, "min_hold", zero=True),
            ("slots", 0, "slots is out of range: 0", "from 1 to 1000"),
            ("slots", -1, "slots is out of range: -1", "from 1 to 1000"),
            ("slots", 1001, "slots is out of range: 1001", "from 1 to 1000"),
            ("slots", 2**31 - 1, "slots is out of range: 2147483647", "from 1 to 1000"),
            ("ttl", "61 minutes", "ttl 01:01:00 is above max_hold 01:00:00", "at most max_hold"),
            ("max_hold", "59 seconds", "ttl 00:01:00 is above max_hold 00:00:59", "at most max_hold"),
            ("min_hold", "61 minutes", "min_hold 01:01:00 is above max_hold 01:00:00", "at most max_hold"),
        ],
    )


def test_names_up_to_the_limit(conn: Conn, clock: Clock) -> None:
    for name in ("a" * 200, "é" * 100, "日本 %s :x $$ '\" \\"):
        answer = acquire(conn, name=name, owner=name)
        assert (answer["reason"], answer["name"], answer["owner"]) == ("granted", name, name)
