"""What pgonce exits with, what it says, and what is recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import pgonce
from pgonce.cli import main
from tests.cli.conftest import Run, Start
from tests.helpers import Clock, Conn

WINDOW = ("window", "job", "@yearly")
KEY = ("key", "scope", "key")
LEASE = ("lease", "name")


def run_of(conn: Conn) -> dict[str, Any]:
    (run,) = conn.execute("select * from pgonce.runs").fetchall()
    return run


@pytest.mark.parametrize("what", [WINDOW, KEY, LEASE])
@pytest.mark.parametrize(
    ("script", "status", "error"),
    [
        ("exit 0", 0, None),
        ("exit 7", 7, "exit status 7"),
        ("kill -9 $$", 137, "ended by SIGKILL"),
        ("kill -TERM $$", 143, "ended by SIGTERM"),
    ],
)
def test_the_status_is_the_command_s_own(
    run: Run, conn: Conn, what: tuple[str, ...], script: str, status: int, error: str | None
) -> None:
    """CASES 39."""
    ended = run(*what, "--", "sh", "-c", script)
    assert (ended.returncode, ended.stderr) == (status, "")
    if what == LEASE:
        assert pgonce.acquire_lease(conn, "name", "1s")
    else:
        after = run_of(conn)
        assert (after["state"], after["error"]) == ("failed" if error else "done", error)


def test_denied(run: Run, conn: Conn) -> None:
    """CASES 39, 51: what may still have to be done is a temporary failure; what is done is none."""
    held = pgonce.claim_key(conn, "scope", "key", "1 hour", owner="somebody")
    denied = run(*KEY, "--", "echo", "ran")
    assert (denied.returncode, denied.stdout, denied.stderr) == (75, "", "")
    told = run(*KEY, "-v", "--denied-exit", "3", "--", "echo", "ran")
    assert told.returncode == 3
    assert told.stdout == ""
    assert told.stderr.startswith("pgonce: denied: scope key: held by somebody, until ")

    pgonce.mark_failed(conn, held.token)
    assert run(*KEY, "--", "echo", "ran").returncode == 75  # backoff
    again = pgonce.claim_key(conn, "other", "key", "1 hour")
    pgonce.mark_done(conn, again.token)
    done = run("key", "other", "key", "--", "echo", "ran")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert run("key", "other", "key", "--denied-exit", "9", "--", "echo", "ran").returncode == 9


def test_waiting(start: Start, conn: Conn) -> None:
    held = pgonce.acquire_lease(conn, "name", "1 hour")
    waiting = start(*LEASE, "--wait", "1 minute", "--", "echo", "ran")
    pgonce.release_lease(conn, held.token)
    assert waiting.communicate() == ("ran\n", "")
    assert waiting.returncode == 0


@pytest.mark.parametrize("what", [WINDOW, KEY, LEASE])
def test_a_command_that_cannot_be_run(run: Run, conn: Conn, tmp_path: Path, what: tuple[str, ...]) -> None:
    """CASES 40. (A PATH with a folder that may not be entered gives 126, as with env(1).)"""
    missing = run(*what, "--", "no-such-command", env={"PATH": os.defpath})
    assert missing.returncode == 127
    assert missing.stderr == "pgonce: no-such-command: No such file or directory\n"
    if what == LEASE:
        assert pgonce.acquire_lease(conn, "name", "1s")
        return
    after = run_of(conn)
    assert (after["state"], after["error"]) == ("failed", "no-such-command: No such file or directory")
    (tmp_path / "text").touch(mode=0o644)
    name = (*what[:-1], "@daily") if what == WINDOW else (*what[:-1], "other")
    refused = run(*name, "--", str(tmp_path / "text"))
    assert refused.returncode == 126
    assert "Permission denied" in refused.stderr


def test_what_the_command_is_told(run: Run, conn: Conn) -> None:
    show = [sys.executable, "-c", "import os, json; print(json.dumps(dict(os.environ)))"]
    stale = {"PGONCE_TOKEN": "1", "PGONCE_WINDOW_START": "x", "PGONCE_WINDOW_END": "x", "PGONCE_ATTEMPT": "9"}

    def told(*what: str) -> dict[str, str]:
        env = json.loads(run(*what, "--", *show, env=stale).stdout)
        return {name[7:]: env[name] for name in stale if name in env}

    window = told(*WINDOW)
    after = run_of(conn)
    assert window == {
        "TOKEN": str(after["token"]),
        "ATTEMPT": "1",
        "WINDOW_START": after["key"],
        "WINDOW_END": f"{int(after['key'][:4]) + 1}{after['key'][4:]}",
    }
    assert set(told(*KEY)) == {"TOKEN", "ATTEMPT"}
    assert set(told(*LEASE)) == {"TOKEN"}


def test_nothing_goes_through_a_shell_and_stdin_is_the_command_s(run: Run, start: Start) -> None:
    assert run(*LEASE, "--", "echo", "$HOME; *", "--", "x").stdout == "$HOME; * -- x\n"
    copying = start(*LEASE, "--", "cat", stdin=subprocess.PIPE)
    assert copying.communicate("text")[0] == "text"


def test_options_reach_the_database(run: Run, conn: Conn) -> None:
    ended = run(
        "window", "--owner", "me", "job", "--ttl", "2 minutes", "0 3 * * *", "--timezone", "Europe/Berlin",
        "--window-start", "2026-03-01T02:00:00Z", "-v", "--", "true",
    )  # fmt: skip
    assert ended.returncode == 0
    assert ended.stderr.startswith("pgonce: job 2026-03-01T02:00:00Z: granted, token ")
    after = run_of(conn)
    assert (after["owner"], after["key"], after["state"]) == ("me", "2026-03-01T02:00:00Z", "done")
    assert run("window", "job", "--window-start", "2026-03-02T03:00:00+01:00", "--", "true").returncode == 0
    assert run(*KEY, "--fingerprint", "a", "--", "false").returncode == 1
    assert run(*KEY, "--fingerprint", "b", "--", "true").returncode == 64


def test_a_run_by_hand_does_not_use_up_the_next_window(run: Run, conn: Conn, clock: Clock) -> None:
    """CASES 41."""
    daily = ("window", "daily", "0 17 * * *", "-v", "--", "true")
    for instant, key in (
        ("2026-03-01 16:58Z", "2026-02-28T17:00:00Z"),
        ("2026-03-01 17:00Z", "2026-03-01T17:00:00Z"),
    ):
        clock.set(instant)
        assert f"daily {key}: granted" in run(*daily).stderr
        assert f"daily {key}: done" in run(*daily).stderr


def test_a_semaphore(start: Start, run: Run) -> None:
    slots = ("--slots", "2", "--max-hold", "1h", "--min-hold", "100ms")
    one, two = (
        start(*LEASE, *slots, "--", "sh", "-c", "echo ready; cat", stdin=subprocess.PIPE) for _ in range(2)
    )
    for process in (one, two):
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    assert run(*LEASE, *slots, "--", "true").returncode == 75
    for process in (one, two):
        process.communicate("")
        assert process.returncode == 0


def only_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The line that comes instead of the command."""
    stdout, stderr = capsys.readouterr()
    assert stdout == ""
    assert stderr.startswith("pgonce: ")
    assert stderr.count("\n") == 1
    return stderr


# -- wrong usage -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "COMMAND"),
        (["windows"], "invalid choice: 'windows'"),
        (["--dsn", "x"], "COMMAND"),
        ([*WINDOW], "put -- and the command"),
        ([*WINDOW, "--"], "put -- and the command"),
        (["window", "--", "touch", "{ran}"], "JOB"),
        (["window", "a", "b", "c", "--", "touch", "{ran}"], "unrecognized arguments: c"),
        (["window", "a", "*", "*", "*", "*", "*", "--", "touch", "{ran}"], "put it in quotes: '*/10"),
        ([*WINDOW, "--frobnicate", "--", "touch", "{ran}"], "unrecognized arguments: --frobnicate"),
        ([*WINDOW, "--tt", "60s", "--", "touch", "{ran}"], "unrecognized arguments: --tt"),
        ([*WINDOW, "--ttl", "soon", "--", "touch", "{ran}"], 'argument --ttl: "soon" is not a duration'),
        ([*WINDOW, "--ttl", "1 month", "--", "touch", "{ran}"], "argument --ttl"),
        ([*WINDOW, "--ttl", "0s", "--", "touch", "{ran}"], "ttl"),
        ([*WINDOW, "--wait", "-5s", "--", "touch", "{ran}"], "argument --wait: -5s is negative"),
        ([*WINDOW, "--wait=-5s", "--", "touch", "{ran}"], 'argument --wait: "-5s" is negative'),
        ([*LEASE, "--ttl", "1h", "--max-hold", "30m", "--", "touch", "{ran}"], "--ttl 01:00:00 is above"),
        (["window", "job", "--", "touch", "{ran}"], "Give SCHEDULE '0 3 * * *' (and --timezone)"),
        ([*WINDOW, "--kill-after", "21s", "--", "touch", "{ran}"], "--kill-after"),
        ([*WINDOW, "--denied-exit", "256", "--", "touch", "{ran}"], "argument --denied-exit"),
        ([*WINDOW, "--window-start", "yesterday", "--", "touch", "{ran}"], "argument --window-start"),
        ([*WINDOW, "--window-start", "2026-01-01T00:00:00", "--", "touch", "{ran}"], "--window-start"),
        ([*WINDOW, "--window-start", "2026-01-01T00:00:01Z", "--", "touch", "{ran}"], "not a fire time"),
        ([*WINDOW, "--embedded", "--dsn", "x", "--", "touch", "{ran}"], "not allowed with"),
        ([*WINDOW, "--timezone", "Berlin", "--", "touch", "{ran}"], "Europe/Berlin"),
        (["window", "job", "60 * * * *", "--", "touch", "{ran}"], "60"),
        (["window", "job", "--", "touch", "{ran}"], "schedule"),
        (["window", "", "@daily", "--", "touch", "{ran}"], "job"),
        (["key", "scope", "--", "touch", "{ran}"], "KEY"),
        ([*LEASE, "--slots", "many", "--", "touch", "{ran}"], "argument --slots"),
        ([*LEASE, "--slots", "0", "--", "touch", "{ran}"], "slots"),
        (["sql", "--", "touch", "{ran}"], "nothing can follow"),
        (["migrate", "now"], "unrecognized arguments: now"),
    ],
)  # fmt: skip
def test_wrong_usage(
    dsn: str,
    conn: Conn,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.setenv("PGONCE_DSN", dsn)
    ran = tmp_path / "ran"
    assert main([argument.format(ran=ran) for argument in arguments]) == 64
    assert says in only_line(capsys)
    assert not ran.exists()
    assert conn.execute("select from pgonce.runs").fetchall() == []


# -- said aloud ------------------------------------------------------------------------------------


def test_what_nobody_will_do_is_said(run: Run, conn: Conn, clock: Clock) -> None:
    """Case 74: exit 75 and a line, also without -v. Seen to fail: silent."""
    clock.set("2030-01-01 00:00Z")
    pgonce.define_job(conn, "job", "@yearly", max_attempts=3, start_deadline="1 hour")
    for _ in range(3):
        pgonce.mark_failed(conn, pgonce.claim_window(conn, "job").token, "no paper", retry_in="0")
    done = run("window", "job", "--", "true")
    assert done.returncode == 75
    assert done.stderr == (
        "pgonce: denied: job 2030-01-01T00:00:00Z: exhausted after 3 attempts; the last one: no paper\n"
    )
    clock.set("2031-01-01 02:00Z")
    done = run("window", "job", "--", "true")
    assert done.returncode == 75
    assert done.stderr == "pgonce: denied: job 2031-01-01T00:00:00Z: late, its start_deadline is over\n"


def test_max_hold(run: Run, conn: Conn) -> None:
    """Case 71: a ttl that nobody named is cut. Seen to fail (64)."""
    pgonce.define_job(conn, "job", "@yearly", max_hold="30s")
    pgonce.define_job(conn, "scope", max_hold="30s")
    assert run("window", "job", "--", "true").returncode == 0
    assert run("key", "scope", "k", "--kill-after", "20s", "--", "true").returncode == 0
    assert run("lease", "x", "--max-hold", "30s", "--", "true").returncode == 0
    runs = conn.execute("select expires_at - claimed_at as ttl from pgonce.runs").fetchall()
    assert [row["ttl"].total_seconds() for row in runs] == [30, 30]


# -- wrong database --------------------------------------------------------------------------------


def test_no_database(start: Start, dsn: str, tmp_path: Path) -> None:
    """Asked for a few seconds, here all at the same time.

    The last one names no database at all. A private one is never started for it: two hosts with two private
    databases would both run.
    """
    ran = tmp_path / "ran"
    password = str(conninfo_to_dict(dsn)["password"])
    wrong: list[tuple[str | None, dict[str, str]]] = [
        (make_conninfo(dsn, dbname="nowhere"), {}),
        (make_conninfo(dsn, user="nobody"), {}),
        (make_conninfo(dsn, port=1), {}),
        (make_conninfo(dsn, host="no-such-host.invalid"), {}),
        (make_conninfo(dsn, sslmode="require"), {}),
        (None, {"PGHOST": "127.0.0.1", "PGPORT": "1", "PGPASSWORD": password}),
    ]
    for process in [start(*WINDOW, "--", "touch", str(ran), dsn=each, env=env) for each, env in wrong]:
        stdout, stderr = process.communicate()
        assert process.returncode == 69
        assert stdout == ""
        assert stderr.startswith("pgonce: no database: ")
        assert stderr.count("\n") == 1
        assert "PGONCE_DSN" in stderr
        assert password not in stderr
    assert not ran.exists()


@pytest.mark.parametrize(
    "dsn",
    [
        "postgresql//user:sekret@host/db",
        "postgresql://user:se%kret@host/db",
        "postgresql://user:sekret/x@host/db",
        "postgresql://user:se@sekret@host/db",
        "host=localhost password=sekret frobnicate=sekret",
        "host=localhost port=sekret",
        "password='sekret",
        "sekret",
    ],
)
def test_a_password_is_never_repeated(dsn: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """libpq quotes the piece of a malformed string that it stumbles over."""
    ran = tmp_path / "ran"
    for arguments in ([*WINDOW, "--dsn", dsn, "--", "touch", str(ran)], ["migrate", "--dsn", dsn]):
        assert main(arguments) == 64
        line = only_line(capsys)
        assert "sekret" not in line
        assert "percent-encoded" in line
    assert not ran.exists()


def refused(run: Run, dsn: str) -> str:
    """The one line that comes instead of the command."""
    ended = run(*WINDOW, "--", "echo", "ran", dsn=dsn)
    assert (ended.returncode, ended.stdout) == (69, "")
    assert ended.stderr.startswith("pgonce: ")
    assert ended.stderr.count("\n") == 1
    return ended.stderr


def test_a_schema_that_is_not_installed(run: Run, empty_dsn: str) -> None:
    assert "not installed: run `pgonce migrate`" in refused(run, empty_dsn)


def test_a_schema_that_is_too_old(run: Run, dsn: str, conn: Conn) -> None:
    conn.execute("create or replace function pgonce.schema_version() returns integer language sql return 0")
    assert "run `pgonce migrate`" in refused(run, dsn)


def test_a_role_without_rights(run: Run, dsn: str) -> None:
    assert "grant_worker" in refused(run, make_conninfo(dsn, user="stranger"))


def test_a_read_only_server(run: Run, dsn: str) -> None:
    assert "target_session_attrs" in refused(run, f"{dsn} options='-c default_transaction_read_only=on'")
