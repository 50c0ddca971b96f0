"""Rule 14, asking again is safe: the same nonce brings the same grant back, and the same finishing call a
yes.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_the_same_grant_comes_back: key: no nonce; lease: no nonce; lease replay of any name
- test_late_but_nobody_came: key: no nonce; window: no nonce; lease: no nonce; window: nonce after the
  window
- test_up_to_max_hold: key: no nonce; window: no nonce; lease: no nonce; window: nonce after the window
- test_never_shortened: key: no nonce; lease: no nonce; replay shortens
- test_the_same_question_by_eight_sessions_at_once: key: no nonce; lease: no nonce
- test_the_lost_answer_arrives_in_between: key: no nonce; lease: no nonce
- test_asked_again_while_a_heartbeat_is_in_flight: key: no nonce; lease: no nonce
- test_asked_again_in_the_same_transaction: key: no nonce; lease: no nonce; lease replay of any name
- test_before_the_window_is_computed: window: no nonce; window: nonce after the window
- test_only_for_the_same_role: lease replay for any role
- test_only_for_the_same_role_among_slots: lease replay for any role
- test_only_under_the_same_name: lease replay of any name
- test_a_grant_that_has_ended_is_no_answer: lease replay of any name
"""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.helpers import Clock, Conn, call, value, wait_for_lock
from tests.rules.conftest import Background, Open
from tests.rules.tools import (
    KINDS,
    NOTHING_HELD,
    RUNS,
    W1,
    W2,
    Gate,
    ask,
    at_once,
    by_conn,
    define,
    expire,
    finish,
    give_up,
    grant,
    grant_all,
    outcome,
    question,
    reason,
    reasons,
    slow_clock,
    table,
    told,
)

N = UUID(int=1)


def test_the_same_grant_comes_back(a: Conn, b: Conn, conn: Conn) -> None:
    """Over another connection of the same role: the same token, slot and attempt, renewed; nothing is granted
    twice.
    """
    for kind in KINDS:
        first = grant(a, kind, nonce=N, owner="host:1")
        again = grant(b, kind, nonce=N, owner="host:1")
        same = ("token", "key", "attempt", "owner", "window_start", "window_end")
        assert [again[name] for name in same] == [first[name] for name in same]
        assert again["expires_at"] > first["expires_at"]
        tokens = f"select count(*) from {table(kind)} t where t.name = %s and t.token is not null"
        assert value(conn, tokens, kind) == 1


def test_another_question_is_denied(a: Conn) -> None:
    """The very session that holds it: without the nonce, or with another one, it is somebody else."""
    for kind in KINDS:
        grant_all(a, kind)
        for nonce in (None, N):
            assert reason(a, kind, nonce=nonce) == "held"


def test_late_but_nobody_came(a: Conn, clock: Clock) -> None:
    """Asked again after the ttl: still held, so it is the same grant."""
    for kind in KINDS:
        first = grant(a, kind, nonce=N, ttl="1 minute")
        clock.advance(hours=1)
        again = grant(a, kind, nonce=N, ttl="1 minute")
        assert again["token"] == first["token"]
        assert again["expires_at"] == clock.now + timedelta(minutes=1)


def test_late_where_windows_overlap(a: Conn, b: Conn, conn: Conn) -> None:
    """allow: another window was granted meanwhile, which excludes nothing: the expired one is still held.

    Seen to fail: expired runs are dropped from the job's ``running``, and the nonce was looked up there only.
    """
    define(conn, "window", overlap="allow")
    first = grant(a, "window", window_start=W1, nonce=N)
    expire(conn, "window")
    grant(b, "window", window_start=W2)
    again = grant(a, "window", window_start=W1, nonce=N)
    assert (again["token"], again["attempt"]) == (first["token"], 1)


def test_before_the_window_is_computed(a: Conn, clock: Clock) -> None:
    """CASES 52: asked at 11:59:58.9, the answer lost, asked again at 12:00:00.4: the same window, not
    overlap. (A little later it would have been noon's from the first.)
    """
    clock.set("2026-06-01 11:59:58.9Z")
    first = call(a, "claim_window", job="n", schedule="*/10 * * * *", nonce=N)
    clock.set("2026-06-01 12:00:00.4Z")
    again = call(a, "claim_window", job="n", schedule="*/10 * * * *", nonce=N)
    assert (again["reason"], again["key"], again["token"]) == (
        "granted",
        "2026-06-01T11:50:00Z",
        first["token"],
    )


def test_up_to_max_hold(a: Conn, b: Conn, conn: Conn, clock: Clock) -> None:
    """The replay renews up to max_hold, and no further; past it the question counts as a new one."""
    for kind in KINDS:
        more: dict[str, Any] = {"nonce": N, "ttl": "4 minutes"}
        if kind in RUNS:
            define(conn, kind, max_hold="10 minutes")
        else:
            more["max_hold"] = "10 minutes"
        first = grant(a, kind, **more)
        end = clock.now + timedelta(minutes=10)
        clock.advance(minutes=3)
        assert grant(a, kind, **more)["expires_at"] == clock.now + timedelta(minutes=4)
        clock.advance(minutes=6)
        again = grant(a, kind, **more)
        assert (again["token"], again["expires_at"]) == (first["token"], end)
        clock.set(end)
        anew = grant(a, kind, **more)
        assert anew["token"] > first["token"]
        assert told(a, first["token"]) == NOTHING_HELD


def test_never_shortened(a: Conn) -> None:
    for kind in KINDS:
        first = grant(a, kind, nonce=N, ttl="2 hours")
        assert grant(a, kind, nonce=N, ttl="1 minute")["expires_at"] == first["expires_at"]


def test_only_under_the_same_name(a: Conn) -> None:
    """A nonce that is used for two things is two questions."""
    for kind in KINDS:
        assert grant(a, kind, f"{kind} 1", nonce=N)["token"] != grant(a, kind, f"{kind} 2", nonce=N)["token"]


def test_only_for_the_same_role(a: Conn, session: Open) -> None:
    """Another role that has read or guessed the nonce is told what everybody is told."""
    for kind in ["window", "key", "lease"]:
        grant(a, kind, nonce=N)
        assert reason(session("worker2"), kind, nonce=N) == "held"


def test_only_for_the_same_role_among_slots(a: Conn, session: Open) -> None:
    """Everybody else would be given one of the free slots.

    Seen to fail: a unique index on (name, nonce) alone refused the second slot, which came out as busy.
    """
    first = grant(a, "slots", nonce=N)
    other = grant(session("worker2"), "slots", nonce=N)
    assert other["key"] != first["key"]


def test_a_grant_that_has_ended_is_no_answer(a: Conn, b: Conn, conn: Conn) -> None:
    """It counts as if the question had no nonce: finished, given up, taken over, burnt."""
    for kind in KINDS:
        first = grant(a, kind, f"{kind} ended", nonce=N)
        finish(a, kind, first["token"])
        assert reason(a, kind, f"{kind} ended", nonce=N) == ("done" if kind in RUNS else "granted")

        first = grant(a, kind, f"{kind} given up", nonce=N)
        give_up(a, kind, first["token"])
        again = grant(a, kind, f"{kind} given up", nonce=N)
        assert again["token"] > first["token"]

        grant(a, kind, f"{kind} taken", nonce=N)
        expire(conn, kind, f"{kind} taken")
        grant_all(b, kind, f"{kind} taken")
        assert reason(a, kind, f"{kind} taken", nonce=N) == "held"


def test_a_burnt_window_is_no_answer(a: Conn, b: Conn, conn: Conn) -> None:
    grant(a, "window", nonce=N)
    expire(conn, "window")
    grant(b, "window", window_start=W2)
    assert reason(a, "window", nonce=N) == "overlap"


def test_a_released_slot_that_is_not_free_yet(a: Conn) -> None:
    """The grant has ended, min_hold still keeps its slot: the question gets one of the others.

    Seen to fail: the ended grant's nonce stayed in its row, and the unique index refused it to every other
    slot; the answer was busy until min_hold was over.
    """
    first = grant(a, "slots", nonce=N, min_hold="1 hour")
    assert finish(a, "slots", first["token"]) == "True"
    again = grant(a, "slots", nonce=N)
    assert again["key"] != first["key"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_question_by_eight_sessions_at_once(conn: Conn, session: Open, kind: str) -> None:
    """One token; who comes in the same instant is told busy (unknown), and asking again gets that token."""
    slow_clock(conn)
    sessions = [session() for _ in range(8)]
    for n in range(5):
        function, arguments = question(kind, f"n{n}", nonce=uuid4())
        if kind == "slots":
            arguments["slots"] = 5
        answers = at_once(conn, [by_conn(one, function, **arguments) for one in sessions])
        assert set(reasons(answers)) <= {"granted", "busy"}
        answers += [call(one, function, **arguments) for one in sessions]
        assert len({claim["token"] for claim in answers if claim["reason"] == "granted"}) == 1
        assert reasons(answers)[8:] == ["granted"] * 8
        held = f"select count(*) from {table(kind)} t where t.name = %s and t.expires_at > pgonce.clock()"
        assert value(conn, held, f"n{n}") == 1


@pytest.mark.parametrize("reading", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_lost_answer_arrives_in_between(
    b: Conn, conn: Conn, session: Open, background: Background, kind: str, reading: int
) -> None:
    """The retry has begun to read when the first attempt commits: that grant, or busy; never held by its own
    doing.

    Seen to fail: the nonce was looked up among the running tokens of the job's row as read before; the
    run was
    read later, and there the first attempt's grant was seen, and called held.
    """
    a = session(application_name="gated")
    if kind in ("lease", "slots"):
        assert finish(b, kind, grant(b, kind)["token"]) == "True"  # the rows are there
    gate = Gate(conn, kind, reading)
    with gate.closed():
        late = background(ask, a, kind, nonce=N)  # a: the retry
        wait_for_lock(conn, a.info.backend_pid)
        first = ask(b, kind, nonce=N)  # b: the first attempt (or it finds a's lock)
    answers = [late.result(), first, ask(b, kind, nonce=N)]
    assert set(reasons(answers)) <= {"granted", "busy"}
    assert len({claim["token"] for claim in answers if claim["reason"] == "granted"}) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_taken_over_while_the_question_comes_back(
    b: Conn, conn: Conn, session: Open, background: Background, kind: str
) -> None:
    """``a``'s grant has expired; ``a`` asks again and is held up; ``b`` asks, too: whoever it is, one has
    it.
    """
    a = session(application_name="gated")
    grant(a, kind, nonce=N)
    expire(conn, kind)
    gate = Gate(conn, kind)
    with gate.closed():
        late = background(ask, a, kind, nonce=N)  # a: stops
        wait_for_lock(conn, a.info.backend_pid)
        other = ask(b, kind)  # b: takes it, or finds it locked
    answers = [late.result(), other]
    assert reasons(answers).count("granted") == (2 if kind == "slots" else 1)
    assert set(reasons(answers)) <= {"granted", "busy", "held"}
    assert answers[0]["token"] != answers[1]["token"]


def test_asked_again_while_a_heartbeat_is_in_flight(a: Conn, b: Conn) -> None:
    """The record is locked by its own holder: busy, unknown; never held, never a second grant."""
    for kind in KINDS:
        claim = grant(a, kind, nonce=N)
        a.execute("begin")
        call(a, "renew_lease", token=claim["token"])
        assert reason(b, kind, nonce=N) == "busy"
        a.execute("commit")
        assert grant(b, kind, nonce=N)["token"] == claim["token"]


def test_asked_again_in_the_same_transaction(a: Conn) -> None:
    for kind in KINDS:
        a.execute("begin")
        claim = grant(a, kind, nonce=N)
        assert grant(a, kind, nonce=N)["token"] == claim["token"]
        a.execute("rollback")
        assert grant(a, kind, nonce=N)["token"] != claim["token"]


# Finishing again


def test_the_same_finishing_call_again(a: Conn, b: Conn, conn: Conn) -> None:
    """True, and what the first one stored is kept; the other one raises."""
    for kind in RUNS:
        done, failed = grant(a, kind, f"{kind} done")["token"], grant(a, kind, f"{kind} failed")["token"]
        assert call(a, "mark_done", token=done, result="1") is True
        assert call(b, "mark_done", token=done, result="2", keep="1 second") is True
        assert outcome(b, "mark_failed", token=done) == "ON001"
        assert call(a, "mark_failed", token=failed, error="one", retry_in="1 hour") is True
        assert call(b, "mark_failed", token=failed, error="two", retry_in="0") is True
        assert outcome(b, "mark_done", token=failed) == "ON001"
        query = """
            select r.result, r.error, r.retry_at > pgonce.clock() + interval '50 minutes' as late,
                r.keep_until > pgonce.clock() + interval '1 day' as kept
            from pgonce.run r where r.token in (%s, %s) order by r.name
        """
        rows = conn.execute(query, (done, failed)).fetchall()
        assert [tuple(row.values()) for row in rows] == [(1, None, None, True), (None, "one", True, True)]


@pytest.mark.parametrize("kind", RUNS)
def test_finished_by_eight_sessions_at_once(conn: Conn, session: Open, kind: str) -> None:
    """Half say done, half failed: one word is stored, those who said the same are told yes, the others that
    it is over.
    """
    slow_clock(conn)
    for function in ("mark_done", "mark_failed"):
        conn.execute(f"alter function pgonce.{function} set lock_timeout = '20s'")
    sessions = [session() for _ in range(8)]
    for n in range(5):
        token = grant(sessions[0], kind, f"n{n}")["token"]
        calls = [("mark_done", {"result": str(n)}) for n in range(4)] + [
            ("mark_failed", {"error": str(n)}) for n in range(4)
        ]
        answers = at_once(
            conn,
            [
                by_conn(one, function, token=token, **more)
                for one, (function, more) in zip(sessions, calls, strict=True)
            ],
        )
        assert Counter(reasons(answers)) == {"True": 4, "ON001": 4}
        assert len(set(reasons(answers)[:4])) == len(set(reasons(answers)[4:])) == 1
        (row,) = conn.execute("select * from pgonce.run where name = %s", (f"n{n}",)).fetchall()
        assert row["state"] == ("done" if answers[0]["reason"] == "True" else "failed")
        assert (row["result"] is None) == (row["state"] == "failed")
