"""Rule 7: nobody waits for somebody else's transaction; what is open elsewhere is answered busy within about
100 ms.

No test looks at a watch: a session that would wait longer is ended by its statement_timeout of five seconds.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_for_a_record_that_exists_there_is_no_wait_at_all: lease: waits for the row
- test_a_denied_claim_locks_nothing: lease: waits for the row; window: waits for running runs
- test_two_who_assert_the_same_token_do_not_deadlock: lease: waits for the row; window: waits for running
  runs
- test_a_run_being_finished_is_busy: window: waits for running runs
- test_an_open_claim_is_busy: insert run without lock_timeout; insert job without lock_timeout; insert
  lease without lock_timeout
- test_what_was_open_and_rolled_back_is_free: insert run without lock_timeout; insert job without
  lock_timeout; insert lease without lock_timeout
- test_crossing_claims_do_not_deadlock: insert run without lock_timeout; insert job without lock_timeout;
  insert lease without lock_timeout
- test_holding_calls_end_in_55p03: renew without lock_timeout; mark_done without lock_timeout; assert_held
  without lock_timeout
"""

from __future__ import annotations

from uuid import uuid4

import pytest

from pgonce._embedded import Server
from tests.helpers import Conn, call, value, wait_for_lock
from tests.rules.conftest import Background, Open
from tests.rules.tools import (
    KINDS,
    RUNS,
    W1,
    W2,
    Gate,
    ask,
    define,
    errors_logged,
    expire,
    finish,
    give_up,
    grant,
    grant_all,
    holding_calls,
    log_waits,
    outcome,
    prepare,
    reason,
    table,
    waits_logged,
)


@pytest.fixture
def b(session: Open) -> Conn:
    """The session that must not have to wait."""
    conn = session()
    conn.execute("set statement_timeout = '5s'")
    return conn


@pytest.mark.parametrize("before", ["new", "expired", "given up"])
def test_an_open_claim_is_busy(a: Conn, b: Conn, conn: Conn, before: str) -> None:
    """CASES 23, 28: busy while ``a`` is undecided; held once it has committed."""
    for kind in KINDS:
        prepare(a, conn, kind, before)
        a.execute("begin")
        grant_all(a, kind)  # a: granted, not committed
        assert reason(b, kind) == "busy"
        b.execute("begin")
        assert reason(b, kind) == "busy"
        assert reason(b, kind) == "busy"  # the first answer has not broken b's own transaction
        b.execute("commit")
        a.execute("commit")
        assert reason(b, kind) == "held"


def test_what_was_open_and_rolled_back_is_free(a: Conn, b: Conn) -> None:
    for kind in KINDS:
        a.execute("begin")
        grant_all(a, kind)
        assert reason(b, kind) == "busy"
        a.execute("rollback")
        assert reason(b, kind) == "granted"


@pytest.mark.parametrize("before", ["expired", "given up"])
def test_for_a_record_that_exists_there_is_no_wait_at_all(
    a: Conn, conn: Conn, superuser: Conn, pg_server: Server, dbname: str, before: str
) -> None:
    """Existing rows are skipped when they are locked; the server would log a wait of a millisecond.

    Seen to fail: for a job's row that is locked elsewhere _lock_job went on to insert one, and waited 100 ms.
    """
    for kind in KINDS:
        prepare(a, conn, kind, before)
        a.execute("begin")
        grant_all(a, kind)
        log_waits(superuser)
        assert reason(superuser, kind) == "busy"
        assert waits_logged(pg_server.log(), dbname) == []
        a.execute("commit")


def test_the_jobs_other_windows_are_busy(a: Conn, b: Conn, conn: Conn) -> None:
    """Rule 10: while one claim is open; those that are decided by reading are answered all the same."""
    finish(a, "window", grant(a, "window", window_start=W1)["token"])
    a.execute("begin")
    grant(a, "window", window_start=W2)
    assert reason(b, "window", window_start="2022-01-01T00:00:00Z") == "busy"
    assert reason(b, "window", window_start=W1) == "done"


def test_another_number_of_slots_while_one_is_being_taken(a: Conn, b: Conn) -> None:
    """``a`` takes one of three free slots, not committed; ``b`` asks for the only one.

    Seen to fail with _resize_lease that does not lock the rows first: its update waited for ``a``.
    """
    finish(a, "slots", grant(a, "slots")["token"])
    a.execute("begin")
    grant(a, "slots")
    assert reason(b, "slots", slots=1) == "busy"
    a.execute("rollback")
    assert reason(b, "slots", slots=1) == "granted"


def test_holding_calls_end_in_55p03(a: Conn, b: Conn, conn: Conn) -> None:
    """Whoever holds does not wait either for a takeover that stays open: the answer is unknown, ask again."""
    for kind in KINDS:
        claim = grant_all(a, kind)
        expire(conn, kind)
        a.execute("begin")
        grant_all(a, kind)
        for function in holding_calls(kind):
            assert outcome(b, function, token=claim["token"]) == "55P03"
        assert value(b, "select current_setting('lock_timeout')") == "0"
        a.execute("rollback")


def test_a_run_being_finished_is_busy(a: Conn, b: Conn, conn: Conn) -> None:
    """CASES 50: its end is in flight when it has expired. Undecided, so neither held nor done."""
    for kind in RUNS:
        claim = grant(a, kind)
        expire(conn, kind)
        a.execute("begin")
        assert finish(a, kind, claim["token"]) == "True"  # a: not committed
        assert reason(b, kind) == "busy"
        a.execute("commit")
        assert reason(b, kind) == "done"


def test_a_denied_claim_locks_nothing(a: Conn, b: Conn, c: Conn, conn: Conn) -> None:
    """``b`` is told busy in a transaction that it leaves open; when ``a``'s claim is gone, ``c`` can be
    granted.

    Seen to fail: busy was found out with the job's row locked, which then stayed so until ``b`` ended;
    nothing
    bounded that, for a denial sets no idle_in_transaction_session_timeout.
    """
    for kind in KINDS:
        claim = grant_all(a, kind)
        expire(conn, kind)
        a.execute("begin")
        call(a, "assert_held", token=claim["token"])  # a: for a moment nobody may take over
        b.execute("begin")
        while kind == "slots" and reason(b, kind) == "granted":
            pass  # b: the two slots that are free
        assert reason(b, kind) == "busy"  # b: and then idles
        a.execute("commit")
        assert reason(c, kind) == "granted"
        b.execute("commit")


@pytest.mark.parametrize("kind", KINDS)
def test_a_claim_denied_under_the_lock_locks_nothing(
    b: Conn, conn: Conn, session: Open, background: Background, kind: str
) -> None:
    """``a`` reads that it has expired, its holder ``b`` renews, ``a`` locks it, sees that, and is told held.

    ``a`` leaves its transaction open: ``b``'s next heartbeat must pass.

    Seen to fail: what claim_window and claim_key locked for the second look stayed locked.
    """
    a = session(application_name="gated")
    claim = grant_all(b, kind)
    expire(conn, kind)
    for one in conn.execute(
        f"select t.token from {table(kind)} t where t.token <> %s", (claim["token"],)
    ).fetchall():
        call(b, "renew_lease", token=one["token"], ttl="1 hour")  # one slot is enough
    gate = Gate(conn, kind)
    a.execute("begin")
    with gate.closed():
        late = background(reason, a, kind)  # a: reads, and stops
        wait_for_lock(conn, a.info.backend_pid)
        call(b, "renew_lease", token=claim["token"], ttl="1 hour")
    assert late.result() in ("held", "busy")
    assert outcome(b, "renew_lease", token=claim["token"]) not in ("55P03", "ON001")


def test_a_token_of_somebody_else_locks_nothing(a: Conn, session: Open) -> None:
    """Another role's call with the token says no, and the holder's heartbeat passes while its transaction is
    open.

    Seen to fail: release_lease locked before it looked whose the lease is.
    """
    other = session("worker2")
    for kind in KINDS:
        claim = grant_all(a, kind)
        for function in ("renew_lease", "release_lease"):
            other.execute("begin")
            outcome(other, function, token=claim["token"])
            assert outcome(a, "renew_lease", token=claim["token"]) not in ("55P03", "ON001")
            other.execute("rollback")


def test_no_advisory_lock_is_a_gate(a: Conn, b: Conn) -> None:
    """Any role could hold its key for ever."""
    for kind in KINDS:
        a.execute("begin")
        grant_all(a, kind)
        reason(b, kind)
        assert value(b, "select count(*) from pg_locks where locktype = 'advisory'") == 0
        a.execute("commit")


def test_crossing_claims_do_not_deadlock(
    a: Conn, b: Conn, c: Conn, conn: Conn, background: Background, pg_server: Server, dbname: str
) -> None:
    """Two transactions claim the same two things of each kind in opposite order: busy, not a deadlock."""
    for kind in KINDS:
        for before in ("new", "expired"):
            one, two = f"{kind} {before} 1", f"{kind} {before} 2"
            for name in (one, two) if before == "expired" else ():
                grant_all(c, kind, name)
                expire(conn, kind, name)
            a.execute("begin")
            b.execute("begin")
            grant_all(a, kind, one)
            grant_all(b, kind, two)
            crossing = background(reason, a, kind, two)  # both at the same time
            assert reason(b, kind, one) == "busy"
            assert crossing.result() == "busy"
            a.execute("commit")
            assert reason(b, kind, one) == "held"
            b.execute("commit")
    assert errors_logged(pg_server.log(), dbname) == []


def test_a_deadlock_timeout_below_ours(
    superuser: Conn, session: Open, background: Background, pg_server: Server, dbname: str
) -> None:
    """The same where the server looks for deadlocks before our lock_timeout is over.

    Seen to fail: 40P01 instead of busy.
    """
    superuser.execute(f"alter database {dbname} set deadlock_timeout = '1ms'")
    a, b = session(), session()
    for kind in KINDS:
        for n in range(3):
            one, two = f"{kind} {n} 1", f"{kind} {n} 2"
            a.execute("begin")
            b.execute("begin")
            grant_all(a, kind, one)
            grant_all(b, kind, two)
            crossing = background(reason, a, kind, two)  # both at the same time
            assert reason(b, kind, one) == "busy"
            assert crossing.result() == "busy"
            a.execute("commit")
            b.execute("commit")
    assert errors_logged(pg_server.log(), dbname) == []


@pytest.mark.parametrize("mode", ["share", "exclusive"])
@pytest.mark.parametrize("before", ["new", "expired", "given up"])
def test_a_table_locked_against_writing_is_busy(a: Conn, b: Conn, conn: Conn, before: str, mode: str) -> None:
    """CASES 67: as by create index (share), or by whoever wants to read in peace (exclusive).

    Seen to fail, with existing records: the claim hung until the index was built.
    """
    for kind in KINDS:
        for locked in ("job", "run") if kind == "window" else (table(kind).removeprefix("pgonce."),):
            name = f"{kind} {locked}"
            if before != "new":
                grant_all(a, kind, name)
                conn.execute(f"update {table(kind)} set expires_at = pgonce.clock() where name = %s", (name,))
            if before == "given up":
                for claim in [grant(a, kind, name) for _ in range(3 if kind == "slots" else 1)]:
                    give_up(a, kind, claim["token"])
            conn.execute("begin")
            conn.execute(f"lock table pgonce.{locked} in {mode} mode")
            assert reason(b, kind, name) == "busy"
            b.execute("begin")
            assert reason(b, kind, name) == "busy"
            b.execute("commit")
            conn.execute("rollback")
            assert reason(b, kind, name) == "granted"


def test_a_question_repeated_while_its_table_is_locked(a: Conn, b: Conn, conn: Conn) -> None:
    """The grant cannot be renewed just now: unknown, and brought back when it can."""
    for kind in KINDS:
        nonce = uuid4()
        claim = grant(a, kind, nonce=nonce)
        conn.execute("begin")
        conn.execute(f"create index on {table(kind)} (owner)")
        assert reason(b, kind, nonce=nonce) == "busy"
        conn.execute("rollback")
        assert ask(b, kind, nonce=nonce)["token"] == claim["token"]


def test_another_number_of_slots_while_the_table_is_locked(a: Conn, b: Conn, conn: Conn) -> None:
    finish(a, "slots", grant(a, "slots")["token"])
    conn.execute("begin")
    conn.execute("create index on pgonce.lease (owner)")
    assert reason(b, "slots", slots=1) == "busy"
    conn.execute("rollback")
    assert reason(b, "slots", slots=1) == "granted"


def test_a_denial_that_cannot_be_noted_is_given_all_the_same(a: Conn, b: Conn, conn: Conn) -> None:
    for kind in RUNS:
        define(conn, kind, record_denials=True)
        grant(a, kind)
        assert reason(b, kind) == "held"
        conn.execute("begin")
        conn.execute("create index on pgonce.denial (at)")
        assert reason(b, kind) == "held"
        conn.execute("rollback")
    assert value(conn, "select count(*) from pgonce.denial") == 2


@pytest.mark.parametrize("kind", KINDS)
def test_ten_who_claim_it_and_roll_back_in_turn(
    b: Conn, conn: Conn, session: Open, background: Background, kind: str
) -> None:
    """CASES 67: whenever one of them goes, the next has it for 95 ms. The eleventh is told busy meanwhile.

    Seen to fail: each of them was waited for, up to 100 ms, so that it took a second.
    """
    b.execute("set statement_timeout = '700ms'")
    first, *others = (session() for _ in range(10))

    def keep_and_roll_back(one: Conn) -> None:
        one.execute("select pg_sleep(0.095)")
        one.execute("rollback")

    def claim_and_roll_back(one: Conn) -> str:
        one.execute("begin")
        answered = reason(one, kind)
        keep_and_roll_back(one)
        return answered

    first.execute("begin")
    grant_all(first, kind)
    turns = [background(claim_and_roll_back, one) for one in others]
    background(keep_and_roll_back, first)
    answered = [reason(b, kind), *(turn.result() for turn in turns)]
    assert set(answered) <= {"busy", "granted"}


def test_two_who_assert_the_same_token_do_not_deadlock(
    a: Conn, b: Conn, conn: Conn, pg_server: Server, dbname: str
) -> None:
    """Both lock the record for key share, both then ask to take it over: each is in the other's way, nobody
    waits.
    """
    for kind in KINDS:
        claim = grant_all(a, kind)
        expire(conn, kind)
        a.execute("begin")
        b.execute("begin")
        assert call(a, "assert_held", token=claim["token"]) is True
        assert call(b, "assert_held", token=claim["token"]) is True
        if kind == "slots":  # the two others
            assert [reason(one, kind) for one in (a, b)] == ["granted", "granted"]
        assert [reason(one, kind) for one in (a, b)] == ["busy", "busy"]
        a.execute("commit")
        b.execute("commit")
    assert errors_logged(pg_server.log(), dbname) == []
