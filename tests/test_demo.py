"""The demo: real hosts and a real kill, what it finds when a window was not done exactly once, its end."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from pgonce.demo._check import TABLE, check, faults
from tests.helpers import Clock, Conn, call, wait_until

PGONCE = [sys.executable, "-c", "import sys; from pgonce.cli import main; sys.exit(main())"]

# The same, with a database that writes every report twice.
SABOTAGED = """
import sys
from pgonce.cli import main
from pgonce.demo import _play
_play.TABLE += ''';
    create function again() returns trigger language plpgsql as $$
    begin
        insert into report values (new.*);
        return null;
    end $$;
    create trigger again after insert on report
        for each row when (pg_trigger_depth() = 0) execute function again();
'''
sys.exit(main())
"""


@pytest.fixture
def folder() -> Iterator[Path]:
    """A temporary folder which the private server's account can enter."""
    with tempfile.TemporaryDirectory(prefix="pgonce-demo-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)
        yield Path(name)


def demo(folder: Path, *arguments: str, program: list[str] = PGONCE) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*program, "demo", *arguments],
        env={**os.environ, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def left_behind(folder: Path) -> list[str]:
    """Everything that the demo started knows its folder: processes, and what is in it."""
    found = [str(path) for path in folder.iterdir()]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"TMPDIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text())
        except OSError:  # ended meanwhile, or somebody else's
            continue
    return found


def test_every_window_is_done_once_though_a_holder_is_killed(folder: Path) -> None:
    process = demo(folder, "--seconds", "12")
    output, _ = process.communicate()
    assert process.returncode == 0, output
    windows = re.findall(r"^ ?\d\d:\d\d:\d\d  .* (\d) +(\S+) *$", output, re.MULTILINE)
    assert len(windows) >= 3, output
    assert {done for _, done in windows} == {"once"}, output
    assert max(attempts for attempts, _ in windows) == "2", output
    assert re.search(r"(\S+) was killed .* and (?!\1)\S+ took its window over", output), output
    assert re.search(r"east-2 .* ms early", output), output
    assert output.count("\nexit status 0\n") == 2, output  # psql
    assert output.endswith("\nEvery window was done exactly once.\n")
    assert left_behind(folder) == []


def test_a_window_done_twice_makes_it_fail(folder: Path) -> None:
    process = demo(folder, "--seconds", "4", program=[sys.executable, "-c", SABOTAGED])
    output, _ = process.communicate()
    assert process.returncode == 1, output
    assert re.search(r"^FAILED: report: window .* was done 2 times$", output, re.MULTILINE), output
    assert re.search(r"^FAILED: nightly: window .* was done 2 times$", output, re.MULTILINE), output


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_can_be_stopped_and_leaves_nothing(folder: Path, how: signal.Signals) -> None:
    process = demo(folder)
    assert process.stdout is not None
    for line in process.stdout:
        if "granted" in line:
            break
    assert len(left_behind(folder)) >= 9  # the folder's entry, the server, the demo, six hosts
    process.send_signal(how)
    rest, _ = process.communicate()
    assert process.returncode == 128 + how
    assert "Traceback" not in rest
    assert left_behind(folder) == []


def test_it_leaves_no_process_when_it_is_killed(folder: Path) -> None:
    """Seen to fail, with six hosts that went on, without _end_with_demo."""
    process = demo(folder)
    assert process.stdout is not None
    for line in process.stdout:
        if "granted" in line:
            break
    process.kill()
    process.wait()
    process.stdout.close()
    wait_until(lambda: [path for path in left_behind(folder) if "python" in path or "postgres" in path] == [])


@pytest.mark.parametrize("seconds", ["3", "3601", "-4", "ten", "4.5", ""])
def test_seconds_that_make_no_sense(folder: Path, seconds: str) -> None:
    process = demo(folder, f"--seconds={seconds}")
    output, _ = process.communicate()
    assert process.returncode == 64
    assert re.fullmatch(r"pgonce: .*--seconds.*\n", output)


# What the check finds, in a database of the test's.

JOB = "report"
SCHEDULE = "every 4 seconds"


@pytest.fixture
def windows(conn: Conn, clock: Clock) -> Conn:
    """The session of a database in which three windows of the job were done, once each."""
    conn.execute(TABLE)
    clock.set("2026-03-01 12:00:00Z")
    for _ in range(3):
        claim = call(conn, "claim_window", job=JOB, schedule=SCHEDULE, ttl="2 seconds")
        conn.execute("insert into report values (%s, %s, 'host')", (JOB, claim["window_start"]))
        call(conn, "mark_done", token=claim["token"])
        clock.advance(seconds=4)
    return conn


def found(conn: Conn) -> list[str]:
    return [
        text.removeprefix("report: window 2026-03-01 ") for text in faults(JOB, check(conn, JOB, SCHEDULE))
    ]


def test_done_once_is_no_fault(windows: Conn) -> None:
    assert found(windows) == []


def test_done_twice(windows: Conn) -> None:
    windows.execute("insert into report values ('report', '2026-03-01 12:00:04Z', 'another')")
    assert found(windows) == ["12:00:04 was done 2 times"]


def test_done_on_record_only(windows: Conn) -> None:
    windows.execute("delete from report where window_start = '2026-03-01 12:00:04Z'")
    assert found(windows) == ["12:00:04 was done 0 times"]


def test_missing(windows: Conn, clock: Clock) -> None:
    clock.advance(seconds=4)
    claim = call(windows, "claim_window", job=JOB)
    windows.execute("insert into report values (%s, %s, 'host')", (JOB, claim["window_start"]))
    call(windows, "mark_done", token=claim["token"])
    assert found(windows) == ["12:00:12 was never granted"]


def test_expected_and_missing(windows: Conn) -> None:
    (verdict,) = check(windows, JOB, SCHEDULE)[-1:]
    expected = verdict.window_start + timedelta(seconds=4)
    assert faults(JOB, check(windows, JOB, SCHEDULE, expected=[expected])) == [
        "report: window 2026-03-01 12:00:12 was never granted"
    ]


def test_done_without_a_grant(windows: Conn) -> None:
    windows.execute("insert into report values ('report', '2026-03-01 12:00:12Z', 'host')")
    assert found(windows) == ["12:00:12 was never granted, but done 1 times"]


def test_not_finished(windows: Conn) -> None:
    claim = call(windows, "claim_window", job=JOB)
    windows.execute("insert into report values (%s, %s, 'host')", (JOB, claim["window_start"]))
    assert found(windows) == ["12:00:12 is running, not done"]


def test_nothing_at_all(conn: Conn) -> None:
    conn.execute(TABLE)
    assert faults(JOB, check(conn, JOB, SCHEDULE)) == ["report: no window was granted"]
