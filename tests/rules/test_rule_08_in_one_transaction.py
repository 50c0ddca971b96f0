"""Rule 8: claim, work and mark_done in one transaction happen exactly once, and an idle one loses its claim
by the ttl.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_each_yes_bounds_how_long_it_may_idle: idle timeout always set; idle timeout not capped; assert_held
  secures nothing; idle timeout not set
- test_rollback_to_a_savepoint: idle timeout not set
- test_a_claim_in_a_savepoint_that_is_released: idle timeout not set
- test_an_idle_transaction_ends_with_the_ttl: idle timeout not set
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable

import pytest

from pgonce._embedded import find_bindir
from tests.helpers import Conn, call, value, wait_until
from tests.rules.tools import (
    KINDS,
    RUNS,
    SHORT,
    STRICT,
    expire,
    finish,
    grant,
    grant_all,
    outcome,
    reason,
    snapshot,
    table,
    yes_calls,
)

IDLE = "select current_setting('idle_in_transaction_session_timeout')"


@pytest.fixture
def conn(conn: Conn) -> Conn:
    conn.execute("create table public.work (name text)")
    conn.execute("grant insert on public.work to worker")
    return conn


def work(a: Conn, name: str) -> None:
    a.execute("insert into public.work values (%s)", (name,))


def worked(conn: Conn, name: str) -> int:
    return int(value(conn, "select count(*) from public.work w where w.name = %s", name))


def test_commit_makes_all_of_it_final(a: Conn, b: Conn, conn: Conn) -> None:
    for kind in RUNS:
        a.execute("begin")
        claim = grant(a, kind)
        work(a, kind)
        assert finish(a, kind, claim["token"]) == "True"
        a.execute("commit")
        assert reason(b, kind) == "done"
        assert worked(conn, kind) == 1


def test_rollback_takes_all_of_it_back(a: Conn, b: Conn, conn: Conn) -> None:
    """CASES 24: no claim, no work, no burnt attempt, and no such token."""
    for kind in KINDS:
        a.execute("begin")
        claim = grant(a, kind)
        work(a, kind)
        finish(a, kind, claim["token"])
        a.execute("rollback")
        assert worked(conn, kind) == 0
        assert value(conn, f"select count(*) from {table(kind)} t where t.token = %s", claim["token"]) == 0
        assert outcome(b, "assert_held", token=claim["token"]) == "ON001"
        assert grant(b, kind)["attempt"] in (1, None)


@pytest.mark.parametrize("before", ["new", "expired"])
def test_rollback_to_a_savepoint(a: Conn, b: Conn, conn: Conn, before: str) -> None:
    """The rest of the transaction commits without the claim; and the one who was taken over has lost
    nothing.
    """
    for kind in KINDS:
        if before == "expired":
            old = grant_all(b, kind)
            expire(conn, kind)
        a.execute("begin")
        work(a, kind)
        a.execute("savepoint s")
        idle = value(a, IDLE)
        claim = grant(a, kind)
        assert value(a, IDLE) != idle
        a.execute("rollback to savepoint s")
        assert value(a, IDLE) == idle
        assert outcome(a, "mark_done" if kind in RUNS else "renew_lease", token=claim["token"]) == "ON001"
        a.execute("rollback to savepoint s")
        a.execute("commit")
        assert worked(conn, kind) == 1
        if before == "expired":
            assert call(b, "assert_held", token=old["token"]) is True
        assert reason(b, kind) == "granted"


def test_a_claim_in_a_savepoint_that_is_released(a: Conn, b: Conn) -> None:
    for kind in RUNS:
        a.execute("begin")
        a.execute("savepoint s")
        claim = grant(a, kind, ttl="7 minutes")
        a.execute("release savepoint s")
        assert value(a, IDLE) == "7min"
        finish(a, kind, claim["token"])
        a.execute("commit")
        assert reason(b, kind) == "done"


@pytest.mark.parametrize("kind", RUNS)
def test_the_client_is_killed(b: Conn, conn: Conn, dsn_for: Callable[[str], str], kind: str) -> None:
    """CASES 24: kill -9 of a psql that has claimed and worked in one transaction: claim and work are gone."""
    claim = {
        "window": "select claimed"
        " from pgonce.claim_window('window', '@yearly', window_start => '2020-01-01Z');",
        "key": "select claimed from pgonce.claim_key('key', 'k', '1 hour');",
    }[kind]
    command = [str(find_bindir() / "psql"), "-XqAt", "-v", "ON_ERROR_STOP=1", "-d", dsn_for("worker")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(f"begin;\n{claim}\ninsert into public.work values ('{kind}');\n\\echo worked\n")
        client.stdin.flush()
        assert [client.stdout.readline() for _ in range(2)] == ["t\n", "worked\n"]
        assert reason(b, kind) == "busy"
        os.kill(client.pid, signal.SIGKILL)
    wait_until(lambda: reason(b, kind) == "granted")
    assert worked(conn, kind) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_an_idle_transaction_ends_with_the_ttl(a: Conn, b: Conn, conn: Conn, kind: str) -> None:
    """The session that claimed and then does nothing is ended by the server: somebody else is granted."""
    a.execute("begin")
    grant_all(a, kind, ttl=SHORT)
    work(a, kind)
    wait_until(lambda: reason(b, kind) == "granted")
    assert worked(conn, kind) == 0


@pytest.mark.parametrize(
    ("ttl", "before", "after"),
    [
        ("7 minutes", "0", "7min"),
        ("7 minutes", "8min", "7min"),
        ("7 minutes", "1d", "7min"),
        ("7 minutes", "6min", "6min"),
        ("1.5 seconds", "0", "1500ms"),
        ("366 days", "0", "24d"),
    ],
)
def test_each_yes_bounds_how_long_it_may_idle(a: Conn, ttl: str, before: str, after: str) -> None:
    """By the ttl, at most 24 days; what is shorter already stays; with the transaction it is gone."""
    a.execute("select set_config('idle_in_transaction_session_timeout', %s, false)", (before,))
    for label, say_yes in yes_calls(a, ttl).items():
        a.execute("begin")
        assert value(a, IDLE) == before, label
        say_yes(a)
        assert value(a, IDLE) == after, label
        a.execute("commit")
        assert value(a, IDLE) == before, label


def test_a_no_changes_nothing(a: Conn, b: Conn, conn: Conn) -> None:
    """Denied by reading (held), or because it is open elsewhere (busy); a token that holds nothing."""
    for kind in KINDS:
        grant_all(a, kind, f"{kind} held")
        a.execute("begin")
        grant_all(a, kind, f"{kind} busy")
        b.execute("begin")
        for answer in ("held", "busy"):
            assert reason(b, kind, f"{kind} {answer}") == answer
            assert value(b, IDLE) == "0"
        assert outcome(b, "release_lease", token=None) == "False"
        assert value(b, IDLE) == "0"
        a.execute("commit")
        b.execute("commit")


@pytest.mark.parametrize("isolation", STRICT)
def test_finishing_in_a_stricter_level_after_a_heartbeat(a: Conn, b: Conn, isolation: str) -> None:
    """mark_done ends in 40001 when a heartbeat has committed since the snapshot: finish in READ COMMITTED."""
    for kind in RUNS:
        claim = grant(a, kind)
        snapshot(a, isolation)
        call(b, "renew_lease", token=claim["token"])  # b: the heartbeat's own connection
        assert finish(a, kind, claim["token"]) == "40001"
        a.execute("rollback")
        assert finish(a, kind, claim["token"]) == "True"
