"""window(), operation(), lease(), every() and exclusive(): granted, denied, and given back."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import pgonce
from pgonce import _rules
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


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
def test_it_fails_also_when_the_program_is_told_to_end(
    dsn: str, conn: Conn, error: type[BaseException]
) -> None:
    with pytest.raises(error), pgonce.window(dsn, "nightly", "@yearly"):
        raise error
    assert run_of(conn)["state"] == "failed"


@pytest.mark.parametrize(("result", "error"), [({1, 2}, TypeError), ("\0", pgonce.InvalidArgument)])
def test_a_result_that_cannot_be_stored_fails_the_run(
    dsn: str, conn: Conn, result: Any, error: type[Exception]
) -> None:
    with pytest.raises(error), pgonce.operation(dsn, "s", "k") as run:
        run.result = result
    assert run_of(conn)["state"] == "failed"


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


def test_a_function_that_only_begins_when_called_is_refused() -> None:
    async def coroutine() -> None: ...

    def generator() -> Any:
        yield 1

    for function in (coroutine, generator):
        with pytest.raises(TypeError, match="only a plain function"):
            pgonce.exclusive("x", dsn="")(function)
