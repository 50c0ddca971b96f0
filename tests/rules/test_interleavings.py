"""Situations that went wrong for somebody (CASES.md), step by step, and one found by reading the SQL.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_case_49_a_window_that_would_burn_the_asserted_one: window: running runs not locked
- test_case_49_a_window_that_may_overlap: window: own run not locked
- test_case_2_mixed_clients_in_the_same_instant: window: no recheck after the lock; lease: no recheck
  after the lock
- test_case_49_assert_held_for_longer_than_the_ttl: lease: no recheck after the lock; key: record not
  locked
- test_case_58_a_hot_standby: read-only window not refused
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import psycopg
import pytest
from psycopg.rows import dict_row

from pgonce._embedded import Server
from tests.helpers import Clock, Conn, Row, call, value, wait_for_lock, wait_until
from tests.rules.conftest import Background, Durable, Open, Standby
from tests.rules.tools import (
    KINDS,
    NOTHING_HELD,
    W1,
    W2,
    Gate,
    answer,
    ask,
    at_once,
    by_conn,
    define,
    errors_logged,
    expire,
    finish,
    give_up,
    grant,
    grant_all,
    outcome,
    patient,
    question,
    reason,
    reasons,
    slow_clock,
    told,
    waits_for,
)

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
TEN = "*/10 * * * *"


def window(conn: Conn, **more: object) -> Row:
    """Every ten minutes, the window open now."""
    return answer(conn, "claim_window", job="n", schedule=TEN, **more)


def test_case_2_mixed_clients_in_the_same_instant(
    conn: Conn, session: Open, pg_server: Server, dbname: str
) -> None:
    """50 sessions ask for ten different things of three kinds at once, each of them for all: ten have one
    winner each.
    """
    slow_clock(conn)
    sessions = [session() for _ in range(24)]
    for n in range(4):
        questions = [question(kind, f"n{n}") for kind in ("window", "key", "lease")]
        answers = at_once(
            conn,
            [by_conn(one, *questions[i % 3][:1], **questions[i % 3][1]) for i, one in enumerate(sessions)],
        )
        for kind in range(3):
            assert reasons(answers[kind::3]).count("granted") == 1
    assert errors_logged(pg_server.log(), dbname) == []


def test_case_23_a_claim_in_a_long_transaction(a: Conn, b: Conn, clock: Clock) -> None:
    """Host B is told busy at once, asks again by itself, and runs the next window when A has ended."""
    clock.set(NOON)
    a.execute("begin")
    first = window(a)
    assert first["reason"] == "granted"
    assert [window(b)["reason"] for _ in range(3)] == ["busy"] * 3
    clock.set(NOON + timedelta(minutes=10))
    assert window(b)["reason"] == "busy"  # the next window, too: the job's row is A's
    assert finish(a, "window", first["token"]) == "True"
    a.execute("commit")
    assert window(b)["key"] == "2026-06-01T12:10:00Z"


@pytest.mark.parametrize("end", ["rollback", "kill", "savepoint"])
def test_case_24_claim_work_and_done_are_taken_back(
    a: Conn, b: Conn, conn: Conn, clock: Clock, end: str
) -> None:
    """However it ends: the claim is gone, and the window claimable, attempt 1."""
    conn.execute("create table public.work (n int)")
    conn.execute("grant insert on public.work to worker")
    clock.set(NOON)
    a.execute("begin")
    a.execute("savepoint s")
    claim = window(a)
    a.execute("insert into public.work values (1)")
    assert finish(a, "window", claim["token"]) == "True"
    match end:
        case "rollback":
            a.execute("rollback")
        case "savepoint":
            a.execute("rollback to savepoint s")
            a.execute("commit")
        case "kill":
            a.close()  # the client is gone, without a word (kill -9 of a process: see rule 8)
    again = wait_until(lambda: (claim := window(b)) and claim["reason"] == "granted" and claim)
    assert again["attempt"] == 1
    assert value(conn, "select count(*) from public.work") == 0


@pytest.mark.parametrize("isolation", ["repeatable read", "serializable"])
def test_case_25_two_hosts_in_a_stricter_level(a: Conn, b: Conn, clock: Clock, isolation: str) -> None:
    """Both have read that nothing runs (the one 12:00, the other 12:10); one is granted, the other gets
    40001.
    """
    clock.set(NOON)
    for one in (a, b):
        one.execute(f"begin isolation level {isolation}")
        one.execute("select 1")
    assert window(a, window_start=NOON)["reason"] == "granted"
    a.execute("commit")
    assert window(b, window_start=NOON - timedelta(minutes=10))["reason"] == "40001"


def test_case_48_a_sleeper_wakes_under_forbid(a: Conn, b: Conn, clock: Clock) -> None:
    """A's 12:00 run expires; B is granted 12:10; A wakes and renews 12:00: its token was burnt by B's
    grant.
    """
    clock.set(NOON)
    sleeper = window(a, ttl="5 minutes")
    clock.set(NOON + timedelta(minutes=10))
    awake = window(b, ttl="5 minutes")
    assert awake["key"] == "2026-06-01T12:10:00Z"
    assert told(a, sleeper["token"]) == NOTHING_HELD
    assert call(b, "assert_held", token=awake["token"]) is True


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_case_48_the_sleeper_wakes_while_the_other_is_being_granted(
    a: Conn, b: Conn, conn: Conn, clock: Clock, background: Background, end: str
) -> None:
    """A's heartbeat waits for B's open claim: burnt if B commits, renewed if not; and then B is denied."""
    patient(conn, "renew_lease")
    clock.set(NOON)
    sleeper = window(a, ttl="5 minutes")
    clock.set(NOON + timedelta(minutes=10))
    b.execute("begin")
    assert window(b)["reason"] == "granted"
    beat = background(outcome, a, "renew_lease", token=sleeper["token"])  # a: waits for the row that b burnt
    wait_for_lock(conn, a.info.backend_pid)
    b.execute(end)
    if end == "commit":
        assert beat.result() == "ON001"
    else:
        assert beat.result() == str(NOON + timedelta(minutes=15))
        assert window(b)["reason"] == "overlap"


def test_case_48_the_heartbeat_first(b: Conn, conn: Conn, session: Open, background: Background) -> None:
    """B has read that A's run is expired; A's heartbeat commits; B looks again under the lock: overlap."""
    a = session(application_name="gated")
    run = grant(b, "window", window_start=W1)
    expire(conn, "window")
    gate = Gate(conn, "window")
    with gate.closed():
        late = background(ask, a, "window", window_start=W2)
        wait_for_lock(conn, a.info.backend_pid)
        call(b, "renew_lease", token=run["token"], ttl="1 hour")
    assert late.result()["reason"] == "overlap"
    assert call(b, "assert_held", token=run["token"]) is True


def test_case_49_assert_held_for_longer_than_the_ttl(a: Conn, b: Conn, c: Conn, conn: Conn) -> None:
    """A's transaction asserts the token; A's heartbeat (another session) passes; C cannot take over until A
    commits.

    Seen to fail with: assert_held without a lock; assert_held locks too much (for share).
    """
    for kind in KINDS:
        claim = grant_all(a, kind)
        a.execute("begin")
        assert call(a, "assert_held", token=claim["token"]) is True
        expire(conn, kind)
        for _ in range(3):
            assert call(b, "renew_lease", token=claim["token"]) is not None
            expire(conn, kind)
        if kind == "slots":
            assert [reason(c, kind) for _ in range(2)] == ["granted"] * 2  # the other slots
        assert reason(c, kind) == "busy"
        a.execute("commit")
        assert reason(c, kind) == "granted"
        assert outcome(a, "assert_held", token=claim["token"]) == "ON001"


@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("kind", KINDS)
def test_case_49_assert_held_behind_a_takeover(
    a: Conn, c: Conn, conn: Conn, background: Background, kind: str, end: str
) -> None:
    """The other way round: the takeover is open, and assert_held waits for the truth."""
    patient(conn, "assert_held")
    claim = grant_all(a, kind)
    expire(conn, kind)
    c.execute("begin")
    grant_all(c, kind)
    late = background(outcome, a, "assert_held", token=claim["token"])
    wait_for_lock(conn, a.info.backend_pid)
    c.execute(end)
    assert late.result() == ("ON001" if end == "commit" else "True")


def test_case_49_a_window_that_would_burn_the_asserted_one(a: Conn, c: Conn, conn: Conn) -> None:
    """forbid and replace burn a run that is not the one claimed: it is protected just the same."""
    for job, overlap in (("f", "forbid"), ("r", "replace")):
        define(conn, "window", job, overlap=overlap)
        claim = grant(a, "window", job, window_start=W1)
        expire(conn, "window", job)
        a.execute("begin")
        assert call(a, "assert_held", token=claim["token"]) is True
        assert reason(c, "window", job, window_start=W2) == "busy"
        a.execute("commit")
        assert reason(c, "window", job, window_start=W2) == "granted"


def test_case_49_a_window_that_may_overlap(a: Conn, c: Conn, conn: Conn) -> None:
    """allow: the grant of another window does not touch the asserted run; its own takeover must wait."""
    define(conn, "window", overlap="allow")
    claim = grant(a, "window", window_start=W1)
    expire(conn, "window")
    a.execute("begin")
    assert call(a, "assert_held", token=claim["token"]) is True
    assert reason(c, "window", window_start=W2) == "granted"
    assert reason(c, "window", window_start=W1) == "busy"
    a.execute("commit")
    assert reason(c, "window", window_start=W1) == "granted"


def test_case_49_another_number_of_slots(a: Conn, c: Conn, conn: Conn) -> None:
    """It would burn every expired holder, also the one that is asserted.

    Seen to fail with: slots: resized without locks.
    """
    claim = grant_all(a, "slots")
    expire(conn, "slots")
    a.execute("begin")
    assert call(a, "assert_held", token=claim["token"]) is True
    assert reason(c, "slots", slots=2) == "busy"
    a.execute("commit")
    assert reason(c, "slots", slots=2) == "granted"


def test_case_50_done_in_its_commit_wait(durable: Durable, background: Background) -> None:
    """12:00's mark_done waits for the standby when both hosts ask for 12:10: overlap at first, then granted
    to one.
    """
    with durable.open() as a, durable.open() as b, durable.open() as c:
        run = grant(a, "window", "case 50", window_start=W1)
        with durable.standby_away() as superuser:
            done = background(
                finish, a, "window", run["token"]
            )  # a: committed here, and not yet on the standby
            wait_until(lambda: waits_for(superuser, a) == "SyncRep")
            for one in (b, c):
                assert reason(one, "window", "case 50", window_start=W2) in ("overlap", "busy")
        assert done.result() == "True"
        assert [reason(one, "window", "case 50", window_start=W2) for one in (b, c)] == ["granted", "held"]


def test_case_57_another_role_asserts_the_wrappers_token(a: Conn, session: Open, conn: Conn) -> None:
    """The wrapper (worker) holds, the job (worker2) asks in its own transaction; neither renews nor ends
    it.
    """
    for kind in KINDS:
        job = session("worker2")
        claim = grant(a, kind)
        job.execute("begin")
        assert call(job, "assert_held", token=claim["token"]) is True
        assert call(a, "renew_lease", token=claim["token"]) is not None
        job.execute("commit")
        assert outcome(job, "renew_lease", token=claim["token"]) == "ON001"
        assert finish(a, kind, claim["token"]) == "True"
        assert outcome(job, "assert_held", token=claim["token"]) == "ON001"


def test_case_58_a_hot_standby(durable: Durable, standby: Standby) -> None:
    """25006 with a hint on every claim, whether held, done or new, and whatever else is wrong with the
    arguments.
    """
    with (
        durable.open() as a,
        psycopg.connect(standby.dsn("durable", "worker"), autocommit=True, row_factory=dict_row) as b,
    ):
        for kind in KINDS:
            grant_all(a, kind, f"58 held {kind}")
            finish(a, kind, grant(a, kind, f"58 done {kind}")["token"])
        end = value(a, "select pg_current_wal_lsn()")
        wait_until(lambda: value(b, "select pg_last_wal_replay_lsn() >= %s::pg_lsn", end))
        for kind in KINDS:
            function, nothing = question(kind)
            for arguments in (
                *(question(kind, f"58 {name} {kind}")[1] for name in ("held", "done", "new")),
                dict.fromkeys(nothing),
            ):
                with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as caught:
                    call(b, function, **arguments)
                assert "target_session_attrs=read-write" in str(caught.value.diag.message_hint)
        for function in NOTHING_HELD:
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as caught:
                call(b, function, token=1)
            assert "This server is a standby." in str(caught.value.diag.message_detail)
        assert value(b, "select pgonce.schema_version()") == 1


# Found by reading the SQL


def test_a_slot_is_taken_while_another_number_of_slots_is_being_decided(
    b: Conn, conn: Conn, session: Open, background: Background
) -> None:
    """``a`` asks for one slot where there are three, all free, and has looked; ``b`` takes one of the three;
    ``a`` locks all of them, and must look again.

    Seen to fail with _resize_lease that decides only once: ``b``'s slot was burnt while ``b`` held it.
    """
    a = session(application_name="gated")
    give_up(b, "slots", grant(b, "slots")["token"])
    gate = Gate(conn, "slots", reading=2)
    with gate.closed():
        late = background(ask, a, "slots", slots=1)  # a: has seen that no slot is held, and stops
        wait_for_lock(conn, a.info.backend_pid)
        between = grant(b, "slots")
    assert late.result()["reason"] == "22023"
    assert outcome(b, "renew_lease", token=between["token"]) not in ("ON001", "55P03")
    assert reason(a, "slots") == "granted"  # there are still three


def test_the_schedule_changes_between_reading_and_locking(
    b: Conn, conn: Conn, session: Open, background: Background
) -> None:
    """A rolling deploy (CASES 5). ``a``, with a new schedule, has read the job; ``b`` is granted with the old
    one and expires; ``a`` goes on: its grant must burn ``b``'s, and its token must be greater.

    Seen to fail: _resolve_schedule handed on the row as it was read before the lock, with its old ``running``
    and ``last_token``; what was granted in between was neither burnt nor the floor.
    """
    a = session(application_name="gated")
    finish(b, "window", grant(b, "window", window_start=W1)["token"])
    gate = Gate(conn, "window")
    with gate.closed():
        late = background(
            ask, a, "window", window_start=None, schedule="0 0 1 1 *"
        )  # a: has read the job, and stops
        wait_for_lock(conn, a.info.backend_pid)
        between = grant(b, "window", window_start=W2)
        expire(conn, "window")
    claim = late.result()
    assert claim["reason"] == "granted"
    assert claim["token"] > between["token"]
    assert told(b, between["token"]) == NOTHING_HELD


def test_the_lock_order_is_job_then_run(a: Conn, conn: Conn, superuser: Conn, background: Background) -> None:
    """``a`` has claimed a window of the job; define_job waits for it, and holds nothing that ``a`` needs to
    finish.
    """
    a.execute("begin")
    claim = grant(a, "window")
    late = background(outcome, conn, "define_job", job="window", schedule="@yearly", overlap="allow")
    wait_for_lock(superuser, conn.info.backend_pid)
    assert finish(a, "window", claim["token"]) == "True"
    a.execute("commit")
    assert late.result() == ""


def test_defining_ends_in_55p03(a: Conn, conn: Conn) -> None:
    """define_job waits for an open claim, but not for ever (10 s; shortened here)."""
    conn.execute("alter function pgonce.define_job set lock_timeout = '100ms'")
    a.execute("begin")
    grant(a, "window")
    assert outcome(conn, "define_job", job="window", schedule="@yearly") == "55P03"
