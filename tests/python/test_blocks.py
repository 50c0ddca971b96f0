"""window(), operation(), lease(), every() and exclusive(): granted, denied, and given back."""

from __future__ import annotations

import functools
import json
import logging
import os
import pickle
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg_pool import ConnectionPool

import pgonce
from pgonce import _rules, schema
from tests.helpers import Clock, Conn, value, wait_until


def run_of(conn: Conn) -> dict[str, Any]:
    """The only run there is."""
    (run,) = conn.execute("select * from pgonce.runs").fetchall()
    return run


def test_a_window_is_done_when_the_block_ends(dsn: str, conn: Conn) -> None:
    with pgonce.window(dsn, "nightly", "@yearly", timezone="UTC", owner="me") as run:
        assert run.held
        run.check()
        assert run.claim.token == run.token
        assert run.attempt == 1
        assert run.window_start is not None
        assert run.window_end is not None
        assert run.window_start < datetime.now(timezone.utc) < run.window_end
        assert run_of(conn)["state"] == "running"
        run.result = {"rows": 7}
    after = run_of(conn)
    assert (after["state"], after["result"], after["owner"]) == ("done", {"rows": 7}, "me")

    with pytest.raises(pgonce.Denied, match="done") as denied, pgonce.window(dsn, "nightly", "@yearly"):
        pytest.fail("it has been done")
    assert denied.value.claim.result == {"rows": 7}


def test_a_window_fails_with_the_error_of_the_block(dsn: str, conn: Conn) -> None:
    with pytest.raises(ValueError, match="paper jam"), pgonce.window(dsn, "nightly", "@yearly"):
        raise ValueError("paper jam\0\udc80")  # what PostgreSQL cannot store is left out
    after = run_of(conn)
    assert (after["state"], after["error"]) == ("failed", "ValueError: paper jam?")
    with pytest.raises(pgonce.Denied, match="backoff"), pgonce.window(dsn, "nightly", "@yearly"):
        pytest.fail("it has failed just now")


def test_a_block_may_finish_the_run_in_its_own_transaction(dsn: str, conn: Conn) -> None:
    """Work and mark_done in one transaction: a heartbeat that is then told "holds nothing" means no harm.

    Seen to fail: with check() before mark_done the block ended in NotHeld, though its work was done.
    """
    with pgonce.window(dsn, "nightly", "@yearly", ttl="1 second") as run:
        with conn.transaction():
            pgonce.mark_done(conn, run.token, {"rows": 7}, in_transaction=True)
        wait_until(lambda: not run.held)
    assert run_of(conn)["result"] == {"rows": 7}

    def gives_up() -> None:
        with pgonce.window(dsn, "weekly", "@yearly", ttl="1 second") as run:
            pgonce.mark_failed(conn, run.token)
            wait_until(lambda: not run.held)

    with pytest.raises(pgonce.NotHeld):
        gives_up()


@pytest.mark.parametrize(
    "error", [KeyboardInterrupt(), SystemExit(1), SystemExit("no paper"), SystemExit(-1), GeneratorExit()]
)
def test_it_fails_also_when_the_program_is_told_to_end(dsn: str, conn: Conn, error: BaseException) -> None:
    with pytest.raises(type(error)), pgonce.window(dsn, "nightly", "@yearly"):
        raise error
    assert run_of(conn)["state"] == "failed"


@pytest.mark.parametrize("code", [0, None])
def test_a_program_that_ends_well_inside_the_block_is_done(dsn: str, conn: Conn, code: int | None) -> None:
    """Case 68: sys.exit(0) at the end of a script. Seen to fail: failed."""

    def script() -> None:
        with pgonce.window(dsn, "nightly", "@yearly") as run:
            run.result = 7
            sys.exit(code)

    with pytest.raises(SystemExit) as ended:
        script()
    assert ended.value.code == code
    assert (run_of(conn)["state"], run_of(conn)["result"]) == ("done", 7)


def test_ending_well_after_it_was_lost(dsn: str, conn: Conn) -> None:
    def work() -> None:
        with pgonce.window(dsn, "nightly", "@yearly", ttl="1 second") as run:
            pgonce.mark_failed(conn, run.token)
            wait_until(lambda: not run.held)
            sys.exit(0)

    with pytest.raises(pgonce.NotHeld):
        work()


DEEP: list[Any] = []
for _ in range(1000):
    DEEP = [DEEP]

NOT_STORABLE: list[tuple[Any, type[Exception], str]] = [
    ({1, 2}, TypeError, r"result: a builtins\.set cannot be written"),
    (datetime(2026, 3, 1, tzinfo=timezone.utc), TypeError, r"result: a datetime\.datetime cannot"),
    (
        {"rows": [1, {"when": timedelta(1)}]},
        TypeError,
        r"result\['rows'\]\[1\]\['when'\]: a datetime\.timedelta",
    ),
    ({("a", "b"): 1}, TypeError, r"result: the key \('a', 'b'\)"),
    ([1, float("nan")], ValueError, r"result\[1\]: nan is no number"),
    (float("-inf"), ValueError, "result: -inf is no number"),
    ({"a": "x\0y"}, ValueError, r"result\['a'\]: .*NUL"),
    ({"x\0y": "a"}, ValueError, "result: the key .*NUL"),
    ("\ud800", ValueError, "result: .*lone surrogate"),
    ({"\udfff": 1}, ValueError, "result: the key .*lone surrogate"),
    (DEEP, ValueError, "nested deeper"),
    (10**5000, ValueError, "result: "),
    (object(), TypeError, r"result: a builtins\.object"),
]


@pytest.mark.parametrize(
    ("result", "error", "said"), NOT_STORABLE, ids=[str(n) for n in range(len(NOT_STORABLE))]
)
def test_a_result_that_cannot_be_stored_is_refused_where_it_is_set(
    dsn: str, conn: Conn, result: Any, error: type[Exception], said: str
) -> None:
    """Case 69. Seen to fail: the work had ended well, and was marked failed."""
    with pgonce.operation(dsn, "s", "k") as run:
        run.result = "before"
        with pytest.raises(error, match=said):
            run.result = result
        assert run.result == "before"
        with pytest.raises(error, match=said):
            pgonce.mark_done(conn, run.token, result)
    assert (run_of(conn)["state"], run_of(conn)["result"]) == ("done", "before")


@pytest.mark.parametrize(
    "result", [None, True, 0, -1.5, "", "é\n", [], {}, {"a": [1, (2, 3), None]}, {1: 2, None: 3.5}]
)
def test_a_result_that_can_be_stored(dsn: str, conn: Conn, result: Any) -> None:
    with pgonce.operation(dsn, "s", "k") as run:
        run.result = result
        assert run.result is result
    assert run_of(conn)["result"] == json.loads(json.dumps(result))


def test_a_result_may_grow_after_it_was_set(dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture) -> None:
    """And if it has grown into something that cannot be stored, it is done with what was set."""
    with pgonce.operation(dsn, "s", "k") as run:
        run.result = {"rows": 0}
        run.result["rows"] += 7
    assert run_of(conn)["result"] == {"rows": 7}
    assert caplog.messages == []
    with pgonce.operation(dsn, "s", "l") as run:
        run.result = {"rows": 0}
        run.result["when"] = datetime.now(timezone.utc)
    (stored,) = conn.execute("select state, result from pgonce.runs where key = 'l'").fetchall()
    assert stored == {"state": "done", "result": {"rows": 0}}
    assert "result['when']" in caplog.text


def test_a_result_that_the_database_has_no_characters_for(
    encoded_dsn: Callable[[str], str], caplog: pytest.LogCaptureFixture
) -> None:
    """The work has ended well: done, without the result."""
    dsn = encoded_dsn("LATIN1")
    schema.migrate(dsn)
    with pgonce.operation(dsn, "s", "k") as run:
        run.result = "日本語"
    assert "its result cannot be stored" in caplog.text
    with pytest.raises(pgonce.Denied, match="done") as denied, pgonce.operation(dsn, "s", "k"):
        pytest.fail("it has been done")
    assert denied.value.claim.result is None


def test_an_operation_is_done_once_for_its_key(dsn: str) -> None:
    with pgonce.operation(dsn, "invoices", "4711", fingerprint="a") as run:
        run.result = 1
    with pytest.raises(pgonce.Denied) as denied, pgonce.operation(dsn, "invoices", "4711", fingerprint="a"):
        pytest.fail("it has been done")
    assert denied.value.claim.result == 1
    with (
        pytest.raises(pgonce.FingerprintMismatch),
        pgonce.operation(dsn, "invoices", "4711", fingerprint="b"),
    ):
        pytest.fail("it is another request")


def test_a_lease_is_released_when_the_block_ends_or_raises(dsn: str, conn: Conn) -> None:
    for error in (None, ZeroDivisionError()):
        with pytest.raises(ZeroDivisionError) if error else pgonce.lease(dsn, "other"):  # noqa: SIM117
            with pgonce.lease(dsn, "deploy", ttl="1 hour") as held:
                assert held.held
                assert not pgonce.acquire_lease(conn, "deploy", "1s")
                if error:
                    raise error
        free = pgonce.acquire_lease(conn, "deploy", "1 hour")
        assert free
        pgonce.release_lease(conn, free.token)


BLOCKS: dict[str, Callable[..., AbstractContextManager[pgonce.Holder]]] = {
    "lease": lambda dsn, **kw: pgonce.lease(dsn, "thing", **kw),
    "window": lambda dsn, **kw: pgonce.window(dsn, "thing", "@yearly", **kw),
    "operation": lambda dsn, **kw: pgonce.operation(dsn, "thing", "key", **kw),
}


def assert_over(held: pgonce.Holder) -> None:
    assert held.held is False
    with pytest.raises(pgonce.NotHeld, match="has ended"):
        held.check()


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("error", [None, ValueError(), KeyboardInterrupt(), SystemExit(0), SystemExit(1)])
def test_after_the_block_nothing_is_held(dsn: str, kind: str, error: BaseException | None) -> None:
    """Case 63: for a thread that goes on, too. Seen to fail: true until the deadline."""
    ended = threading.Event()

    def left_behind(held: pgonce.Holder) -> None:
        assert held.held
        ended.wait()
        assert_over(held)

    with ThreadPoolExecutor() as pool:
        try:
            with BLOCKS[kind](dsn, ttl="1 hour") as held:
                going_on = pool.submit(left_behind, held)
                if error is not None:
                    raise error
        except BaseException as raised:  # noqa: BLE001
            assert raised is error  # noqa: PT017
        assert_over(held)
        ended.set()
        going_on.result()


@pytest.mark.parametrize("kind", BLOCKS)
def test_nothing_is_held_when_its_end_cannot_be_told(
    dsn: str, conn: Conn, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """mark_done or release_lease end in an error, or say that it is somebody else's now."""
    monkeypatch.setattr(_rules, "attempt_seconds", lambda left: left)
    conn.execute("alter function pgonce.mark_done(bigint, jsonb, interval) rename to mark_done_no_more")
    conn.execute("alter function pgonce.release_lease(bigint) rename to release_lease_no_more")
    with suppress(pgonce.Error), BLOCKS[kind](dsn, ttl="1 hour") as held:
        assert held.held
    assert_over(held)


@pytest.mark.parametrize("kind", BLOCKS)
def test_nothing_is_held_while_its_end_is_told(
    dsn: str, conn: Conn, connect: Callable[..., Conn], kind: str
) -> None:
    """Once it is being released, it may be anybody's."""
    function = "release_lease" if kind == "lease" else "mark_done"
    conn.execute(f"alter function pgonce.{function} set lock_timeout = '20s'")
    locking = connect(autocommit=False)
    in_block, locked = threading.Event(), threading.Event()
    held: list[pgonce.Holder] = []

    def work() -> None:
        with BLOCKS[kind](dsn, ttl="1 hour") as holder:
            held.append(holder)
            in_block.set()
            locked.wait()

    with ThreadPoolExecutor() as pool:
        working = pool.submit(work)
        in_block.wait()
        locking.execute(f"select from pgonce.{'lease' if kind == 'lease' else 'run'} for update")
        locked.set()
        try:
            wait_until(lambda: value(conn, "select exists (select from pg_locks where not granted)"))
            assert_over(held[0])
        finally:
            locking.rollback()
        working.result()


def test_a_semaphore(dsn: str) -> None:
    with pgonce.lease(dsn, "pool", slots=2) as one, pgonce.lease(dsn, "pool", slots=2) as two:
        assert {one.claim.key, two.claim.key} == {"1", "2"}
        with pytest.raises(pgonce.Denied, match="held"), pgonce.lease(dsn, "pool", slots=2):
            pytest.fail("there are two slots")


def test_waiting_for_a_lease(dsn: str, conn: Conn) -> None:
    held = pgonce.acquire_lease(conn, "deploy", "1 hour")
    got = threading.Event()

    def wait_for_it() -> None:
        with pgonce.lease(dsn, "deploy", wait="1 minute"):
            got.set()

    waiting = threading.Thread(target=wait_for_it)
    waiting.start()
    answered = (
        "select count(*) > 0 from pg_stat_activity where query like '%acquire_lease%' and state = 'idle'"
    )
    wait_until(lambda: value(conn, answered))
    assert not got.is_set()
    pgonce.release_lease(conn, held.token)
    waiting.join()
    assert got.is_set()


def test_a_wait_that_is_over_ends_in_the_denial(dsn: str, conn: Conn) -> None:
    pgonce.acquire_lease(conn, "deploy", "1 hour")
    with pytest.raises(pgonce.Denied, match="held"), pgonce.lease(dsn, "deploy", wait="100ms"):
        pytest.fail("it is held")


def test_busy_is_asked_again_without_being_told_to(
    dsn: str, conn: Conn, connect: Callable[..., Conn]
) -> None:
    """CASES 23: a claim inside an open transaction. Seen to fail with busy as a final answer."""
    other = connect(autocommit=False)
    pgonce.claim_key(other, "s", "k", "1 minute", in_transaction=True)
    done = threading.Event()

    def work() -> None:
        with pgonce.operation(dsn, "s", "k"):
            done.set()

    asking = threading.Thread(target=work)
    asking.start()
    answered = "select count(*) > 0 from pg_stat_activity where query like '%claim_key%' and state = 'idle'"
    wait_until(lambda: value(conn, answered))
    other.rollback()
    asking.join()
    assert done.is_set()


def test_busy_for_long_ends_in_a_denial(
    dsn: str, connect: Callable[..., Conn], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_rules, "PATIENCE_SECONDS", 0.2)
    other = connect(autocommit=False)
    pgonce.claim_key(other, "s", "k", "1 minute", in_transaction=True)
    with pytest.raises(pgonce.Denied, match="busy"), pgonce.operation(dsn, "s", "k"):
        pytest.fail("it is undecided")


def test_a_window_granted_early_starts_on_time(dsn: str, conn: Conn, clock: Clock) -> None:
    """The wait goes by the database's clock, here half a second before the year.

    Seen to fail without the wait: the block began while the database's clock stood before the window.
    """
    clock.set("2029-06-01 00:00Z")
    pgonce.define_job(conn, "yearly", "@yearly", early="1 second")
    pgonce.mark_done(conn, pgonce.claim_window(conn, "yearly").token)
    clock.set("2029-12-31 23:59:59.5Z")
    before = time.monotonic()
    with pgonce.window(dsn, "yearly") as run:
        assert run.window_start == datetime(2030, 1, 1, tzinfo=timezone.utc)
        assert time.monotonic() - before >= 0.5


def test_a_window_by_its_start(dsn: str, conn: Conn) -> None:
    start = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with pgonce.window(dsn, "yearly", "@yearly", window_start=start) as run:
        assert run.window_start == start
    with (
        pytest.raises(pgonce.InvalidArgument),
        pgonce.window(dsn, "yearly", "@yearly", window_start=start + timedelta(seconds=1)),
    ):
        pytest.fail("it is not a start of the schedule")


@pytest.mark.parametrize(
    "arguments",
    [{"ttl": "1 month"}, {"ttl": ""}, {"wait": "soon"}, {"ttl": timedelta(0)}, {"ttl": timedelta(days=999)}],
)
def test_a_bad_duration_is_refused(dsn: str, conn: Conn, arguments: dict[str, Any]) -> None:
    for block in (
        pgonce.lease(dsn, "x", **arguments),
        pgonce.operation(dsn, "s", "k", **arguments),
        pgonce.window(dsn, "job", "@yearly", **arguments),
    ):
        with pytest.raises(pgonce.InvalidArgument), block:
            pytest.fail("there is no such duration")
    assert value(conn, "select count(*) from pgonce.runs") == 0


# -- where the connection comes from ---------------------------------------------------------------


def test_the_default_owner_names_host_and_process(dsn: str, conn: Conn) -> None:
    with pgonce.lease(dsn, "x") as held:
        assert held.claim.owner is not None
        assert held.claim.owner.endswith("@127.0.0.1")
        assert value(conn, "select owner ~ '^[^:]+:[0-9]+@127[.]0[.]0[.]1$' from pgonce.leases")
    with pgonce.lease(f"{dsn} application_name=app", "x") as held:
        assert held.claim.owner == "app@127.0.0.1"


def test_a_function_may_stand_for_the_dsn(dsn: str) -> None:
    made: list[psycopg.Connection[Any]] = []

    def make() -> psycopg.Connection[Any]:
        made.append(psycopg.connect(dsn))  # not autocommit: it is ours to set up
        return made[-1]

    with pgonce.lease(make, "x"), pytest.raises(pgonce.Denied), pgonce.lease(make, "x"):
        pytest.fail("it is held")
    assert len(made) == 2
    assert all(conn.closed for conn in made)


def test_a_pool_of_one_that_the_work_uses(dsn: str) -> None:
    """CASES 19: the heartbeat has a connection of its own. Seen to fail (PoolTimeout) with the pool's."""
    with ConnectionPool(dsn, min_size=1, max_size=1, timeout=5, open=True) as pool:
        with pool.connection() as working, pgonce.lease(pool, "x", ttl="600ms") as held:
            first = held.claim.expires_at
            wait_until(
                lambda: (
                    working.execute("select expires_at > %s from pgonce.leases", (first,)).fetchone()
                    == (True,)
                )
            )
        with pgonce.lease(pool, "x"), pool.connection() as working:
            assert working.execute("select count(*) from pgonce.leases where not expired").fetchone() == (1,)


@pytest.mark.parametrize("dsn", [None, 5, lambda: "dbname=x"])
def test_anything_else_is_refused(dsn: Any) -> None:
    with pytest.raises(TypeError, match="dsn: a connection string"), pgonce.lease(dsn, "x"):
        pytest.fail("there is no connection")


def settings_of(conn: Conn) -> dict[str, Any]:
    """Of the session that keeps the lease."""
    (row,) = conn.execute("""
        select a.application_name from pg_stat_activity a
        where a.datname = current_database() and a.query like '%acquire_lease%' and a.pid <> pg_backend_pid()
    """).fetchall()
    return row


@pytest.mark.parametrize("way", ["text", "pool", "function"])
@pytest.mark.parametrize("named", [True, False])
def test_our_connections_have_a_name(dsn: str, conn: Conn, way: str, *, named: bool) -> None:
    """host:pid, unless they have one of their own."""
    if named:
        dsn = make_conninfo(dsn, application_name="mine")
    with ConnectionPool(dsn, min_size=0, max_size=1, open=True) as pool:
        ways: dict[str, Any] = {"text": dsn, "pool": pool, "function": lambda: psycopg.connect(dsn)}
        with pgonce.lease(ways[way], "x"):
            assert settings_of(conn)["application_name"] == (
                "mine" if named else f"{socket.gethostname()}:{os.getpid()}"
            )


def test_a_pool_s_configure_is_honoured(dsn: str, conn: Conn) -> None:
    """And cannot take away what we need."""
    configured: list[psycopg.Connection[Any]] = []

    def configure(one: psycopg.Connection[Any]) -> None:
        one.execute("set application_name = 'configured'")
        one.execute("set client_encoding = 'SQL_ASCII'")
        one.commit()
        one.autocommit = False
        configured.append(one)

    with ConnectionPool(dsn, min_size=0, max_size=1, configure=configure, open=True) as pool:
        with pgonce.lease(pool, "x"):
            assert settings_of(conn)["application_name"] == "configured"
            assert pool.get_stats().get("connections_num", 0) == 0  # none of its own was taken
        assert len(configured) == 1


# -- max_hold, durations ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["window", "operation"])
def test_a_ttl_that_the_job_cuts(dsn: str, conn: Conn, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Case 71. The holder's own deadline is that of what was granted, and no beat is sent in vain.

    Seen to fail: with the ttl asked for, it believed to hold it for a minute.
    """
    pgonce.define_job(conn, "thing", "@yearly" if kind == "window" else None, max_hold="1 second")

    def work() -> None:
        with BLOCKS[kind](dsn) as held:
            assert 0.9 < held._hold.ttl.total_seconds() < 1.01
            wait_until(lambda: not held.held)
            held.check()

    with pytest.raises(pgonce.NotHeld, match="max_hold is reached"):
        work()
    assert all("is lost: max_hold is reached" in message for message in caplog.messages)


def test_the_database_s_clock_has_gone_back(dsn: str, clock: Clock) -> None:
    """The token then tells of a later instant than the grant's, which looks as if the ttl was cut."""
    clock.set("2030-06-01 12:00Z")
    with pgonce.window(dsn, "thing", "@yearly"):
        pass
    clock.set("2030-06-01 11:00Z")
    start = datetime(2028, 1, 1, tzinfo=timezone.utc)
    with pgonce.window(dsn, "thing", "@yearly", window_start=start) as run:
        assert run._hold.ttl == timedelta(seconds=60)
        assert run.held


def test_the_default_ttl_of_a_lease_is_at_most_its_max_hold(dsn: str, conn: Conn) -> None:
    """Case 71. Seen to fail: ttl 00:01:00 is above max_hold."""
    with pgonce.lease(dsn, "x", max_hold="30s"):
        assert value(conn, "select expires_at - acquired_at from pgonce.leases") == timedelta(seconds=30)
    with pgonce.lease(dsn, "x", max_hold="0"):  # none
        assert value(conn, "select expires_at - acquired_at from pgonce.leases") == timedelta(seconds=60)
    assert pgonce.exclusive("x", dsn=dsn, max_hold=timedelta(seconds=30))(lambda: "ran")() == "ran"
    with pytest.raises(pgonce.InvalidArgument, match=r"ttl .* is above max_hold"):
        pgonce.exclusive("x", dsn=dsn, ttl="1m", max_hold="30s")(lambda: "ran")()


def test_a_number_is_no_duration(dsn: str, conn: Conn) -> None:
    for number in (60, 60.5, True):
        needed = r"a timedelta or a text such as '60s' is needed"
        with pytest.raises(TypeError, match=f"ttl: {needed}"), pgonce.lease(dsn, "x", ttl=number):  # type: ignore[arg-type]
            pytest.fail("seconds, or minutes?")
        with pytest.raises(TypeError, match=f"wait: {needed}"), pgonce.lease(dsn, "x", wait=number):  # type: ignore[arg-type]
            pytest.fail("seconds, or minutes?")
        with pytest.raises(TypeError, match=f"min_hold: {needed}"):
            pgonce.acquire_lease(conn, "x", "1m", min_hold=number)  # type: ignore[arg-type]


def test_a_text_that_is_no_duration_is_told_with_its_argument(dsn: str, conn: Conn) -> None:
    refused = pytest.raises(pgonce.InvalidArgument, match='ttl: "abc" is not a duration')
    with refused, pgonce.lease(dsn, "x", ttl="abc"):
        pytest.fail("how long?")
    refused = pytest.raises(pgonce.InvalidArgument, match="wait: -1s is negative")
    with refused, pgonce.lease(dsn, "x", wait="-1s"):
        pytest.fail("how long?")
    for text in ("abc", "1 fortnight", "99999999999999999999 days"):
        with pytest.raises(pgonce.InvalidArgument, match=f'max_hold: "{text}" is not a duration'):
            pgonce.acquire_lease(conn, "x", "1m", max_hold=text)


# -- said aloud ------------------------------------------------------------------------------------


@pytest.mark.parametrize("reads", [True, False])
def test_exhausted_is_a_warning(
    dsn_for: Callable[[str], str], conn: Conn, caplog: pytest.LogCaptureFixture, *, reads: bool
) -> None:
    """Case 74: nobody will do that work. With the last error for those who may read it."""
    if reads:
        pgonce.grant_reader(conn, "worker")
    pgonce.define_job(conn, "nightly", "@yearly", max_attempts=2)
    dsn = dsn_for("worker")
    for _ in range(2):
        token = pgonce.claim_window(conn, "nightly").token
        pgonce.mark_failed(conn, token, "ValueError: paper\njam", retry_in="0")
    assert pgonce.every("@yearly", job="nightly", dsn=dsn)(lambda: "ran")() is None
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert "exhausted after 2 attempts" in record.message
    assert ("ValueError: paper jam" in record.message) is reads
    with pytest.raises(pgonce.Denied) as denied, pgonce.window(dsn, "nightly"):
        pytest.fail("it is exhausted")
    assert denied.value.last_error == ("ValueError: paper\njam" if reads else None)
    assert pickle.loads(pickle.dumps(denied.value)).last_error == denied.value.last_error


def test_late_is_a_warning(dsn: str, conn: Conn, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    clock.set("2030-01-01 00:00Z")
    pgonce.define_job(conn, "nightly", "@yearly", start_deadline="1 hour")
    clock.set("2030-01-01 01:00:01Z")
    assert pgonce.every("@yearly", job="nightly", dsn=dsn)(lambda: "ran")() is None
    (record,) = caplog.records
    assert (record.levelname, "start_deadline is over" in record.message) == ("WARNING", True)


# -- decorators ------------------------------------------------------------------------------------


def test_every(dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture) -> None:
    calls: list[tuple[int, str]] = []

    @pgonce.every("@yearly", job="report", dsn=dsn)
    def report(number: int, *, word: str) -> str:
        """Reports."""
        calls.append((number, word))
        return "reported"

    caplog.set_level(logging.INFO, "pgonce")
    assert report(1, word="a") == "reported"
    assert caplog.messages == []
    assert report(2, word="b") is None
    assert calls == [(1, "a")]
    (message,) = caplog.messages
    assert "done" in message
    assert (report.__name__, report.__doc__) == ("report", "Reports.")
    assert run_of(conn)["state"] == "done"


def test_exclusive(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    @pgonce.exclusive("import", dsn=dsn)
    def outer() -> Any:
        return inner()

    @pgonce.exclusive("import", dsn=dsn)
    def inner() -> str:
        return "ran"

    caplog.set_level(logging.INFO, "pgonce")
    assert outer() is None
    assert "held" in caplog.text
    assert inner() == "ran"


def test_a_denial_inside_the_function_is_its_own(dsn: str, conn: Conn) -> None:
    """Seen to fail with the function called inside the try."""
    pgonce.acquire_lease(conn, "inner", "1 hour")

    @pgonce.exclusive("outer", dsn=dsn)
    def work() -> None:
        with pgonce.lease(dsn, "inner"):
            pytest.fail("it is held")

    with pytest.raises(pgonce.Denied, match="inner"):
        work()


def test_every_stores_what_the_function_returns(
    dsn: str, conn: Conn, caplog: pytest.LogCaptureFixture
) -> None:
    pgonce.every("@yearly", job="report", dsn=dsn)(lambda: {"rows": 7})()
    assert run_of(conn)["result"] == {"rows": 7}
    when = datetime.now(timezone.utc)
    assert pgonce.every("@monthly", job="other", dsn=dsn)(lambda: [when])() == [when]
    (other,) = conn.execute("select state, result from pgonce.runs where name = 'other'").fetchall()
    assert other == {"state": "done", "result": None}
    (message,) = caplog.messages
    assert "what it returned is not stored: result[0]: a datetime.datetime" in message


class Plain:
    def __call__(self) -> str:
        return "ran"

    def method(self) -> str:
        return "ran"

    async def later(self) -> str:
        return "never"


class Later:
    async def __call__(self) -> str:
        return "never"


class Task:
    """Can be awaited and cancelled, as asyncio's can."""

    def __await__(self) -> Any:
        yield

    def cancel(self) -> None: ...


async def coroutine() -> str:
    return "never"


def generator() -> Any:
    yield "never"


async def asynchronous_generator() -> Any:
    yield "never"


async def later_with(number: int) -> int:
    return number


@pytest.mark.parametrize(
    "function",
    [
        coroutine,
        generator,
        asynchronous_generator,
        Later(),
        Plain().later,
        functools.partial(coroutine),
        functools.partial(functools.partial(later_with), 1),
        functools.partial(generator),
        functools.partial(Later()),
    ],
)
def test_a_function_that_only_begins_when_called_is_refused(function: Callable[..., Any]) -> None:
    """Case 70: seen when it is decorated, and nothing is asked."""
    for decorate in (pgonce.exclusive("x", dsn=""), pgonce.every("@daily", job="x", dsn="")):
        with pytest.raises(TypeError, match="only a plain function"):
            decorate(function)


@pytest.mark.parametrize(
    "function",
    [
        lambda: coroutine(),
        lambda: generator(),
        lambda: asynchronous_generator(),
        functools.partial(lambda begin: begin(), coroutine),
        Task,
    ],
)
def test_what_begins_later_is_refused_when_it_comes_back(
    dsn: str, conn: Conn, function: Callable[..., Any]
) -> None:
    """Case 70: it is closed (a coroutine never awaited would warn), and the run has failed.

    Seen to fail: a lambda that returned a coroutine was done, and nothing had run.
    """
    decorated = pgonce.every("@yearly", job="report", dsn=dsn)(function)
    with pytest.raises(TypeError, match=r"only a plain function.*returned a"):
        decorated()
    assert run_of(conn)["state"] == "failed"
    with pytest.raises(TypeError, match="only a plain function"):
        pgonce.exclusive("x", dsn=dsn)(function)()
    assert pgonce.acquire_lease(conn, "x", "1s")


@pytest.mark.parametrize(
    "function", [Plain(), Plain().method, functools.partial(Plain()), lambda: "ran", "ran".lower]
)
def test_any_plain_callable_can_be_decorated(dsn: str, function: Callable[[], str]) -> None:
    assert pgonce.exclusive("x", dsn=dsn)(function)() == "ran"
