"""nightly.sql, the script for psql which the demo runs and the README quotes."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import pgonce.demo
from pgonce._embedded import find_bindir
from pgonce.demo._check import TABLE
from tests.helpers import ROOT, Clock, Conn, call, psql, value, wait_until

NIGHTLY = Path(pgonce.demo.__file__).with_name("nightly.sql")

GRANTED = "window 2026-03-02T02:00:00Z is ours, attempt {}\n"


@pytest.fixture(autouse=True)
def noon(conn: Conn, clock: Clock) -> None:
    """A day's window is open, and the table is there that the work goes to."""
    conn.execute(TABLE)
    conn.execute("grant insert on report to worker")
    clock.set("2026-03-02 12:00:00Z")


@pytest.fixture
def nightly(dsn_for: Callable[[str], str]) -> Callable[[], tuple[int, str]]:
    """A function that runs the script as a worker, and returns its exit status and what it said."""

    def run() -> tuple[int, str]:
        done = psql(dsn_for("worker"), "-f", NIGHTLY, check=False)
        assert (done.returncode == 0) == (done.stderr == "")
        return done.returncode, done.stdout + done.stderr

    return run


def reports(conn: Conn) -> int:
    return int(value(conn, "select count(*) from report"))


def run_of(conn: Conn) -> dict[str, Any]:
    (row,) = conn.execute("select state, attempt from pgonce.runs").fetchall()
    return row


def test_first_granted_then_done_before(conn: Conn, nightly: Callable[[], tuple[int, str]]) -> None:
    assert nightly() == (0, GRANTED.format(1))
    assert nightly() == (0, "window 2026-03-02T02:00:00Z was done before\n")
    assert reports(conn) == 1
    assert run_of(conn) == {"state": "done", "attempt": 1}


def test_held_by_somebody_else_ends_with_status_3(conn: Conn, nightly: Callable[[], tuple[int, str]]) -> None:
    call(conn, "claim_window", job="nightly", schedule="0 3 * * *", timezone="Europe/Berlin")
    status, output = nightly()
    assert status == 3
    assert output.startswith("window 2026-03-02T02:00:00Z is not ours: held\n")
    assert reports(conn) == 0


def test_failed_work_is_not_done_and_can_be_taken_over(
    conn: Conn, clock: Clock, nightly: Callable[[], tuple[int, str]]
) -> None:
    conn.execute("alter table report add constraint full_disk check (job <> 'nightly')")
    status, output = nightly()
    assert status == 3
    assert "full_disk" in output
    assert run_of(conn) == {"state": "running", "attempt": 1}

    conn.execute("alter table report drop constraint full_disk")
    assert nightly()[0] == 3
    clock.advance(minutes=30)
    assert nightly() == (0, GRANTED.format(2))
    assert reports(conn) == 1
    assert run_of(conn) == {"state": "done", "attempt": 2}


def test_overtaken_in_the_middle_it_writes_nothing(
    conn: Conn, clock: Clock, connect: Callable[..., Conn], nightly: Callable[[], tuple[int, str]]
) -> None:
    """Script: claims, waits for the table. Owner: takes over after the ttl, frees it. Script: ON001."""
    locker = connect(autocommit=False)
    locker.execute("lock table report in share mode")
    with ThreadPoolExecutor(1) as pool:
        script = pool.submit(nightly)
        waiting = "select count(*) = 1 from pg_locks where not granted and relation = 'report'::regclass"
        wait_until(lambda: value(conn, waiting))
        clock.advance(minutes=30)
        assert call(conn, "claim_window", job="nightly")["attempt"] == 2
        locker.rollback()
        status, output = script.result()
    assert status == 3
    assert "holds nothing" in output
    assert reports(conn) == 0
    assert run_of(conn) == {"state": "running", "attempt": 2}


def readme_blocks() -> list[str]:
    text = (ROOT / "README.md").read_text()
    return re.findall(r"^```\w*\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def test_the_readme_quotes_it(dsn_for: Callable[[str], str], conn: Conn, tmp_path: Path) -> None:
    """Case 75: the quote itself, run by psql -f and without -v, stops with 3 at a window it does not hold.

    Seen to fail: without ON_ERROR_STOP it went on, and ended with 0.
    """
    (quote,) = [block for block in readme_blocks() if "\\gset" in block and "\\if" in block]
    assert quote in NIGHTLY.read_text()
    script = tmp_path / "quoted.sql"
    script.write_text(quote)

    def run() -> int:
        command = [str(find_bindir() / "psql"), "-X", "-f", str(script), dsn_for("worker")]
        return subprocess.run(command, capture_output=True, check=False).returncode

    other = call(conn, "claim_window", job="nightly", schedule="0 3 * * *", timezone="Europe/Berlin")
    assert run() == 3
    call(conn, "mark_failed", token=other["token"], retry_in="0")
    assert [run(), run()] == [0, 0]
    assert reports(conn) == 1
