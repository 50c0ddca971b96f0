"""The crontab lines of the READMEs: the holder is killed, another host takes the same window (case 76)."""

from __future__ import annotations

import re
import shlex
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.conftest import PGONCE, environment, line_of
from tests.helpers import ROOT, Conn, wait_until

LINE = re.compile(r"^(?:\S+ ){5} pgonce (window .* -- ).*$", re.MULTILINE)


@pytest.mark.parametrize("page", ["README.md", "pylib/README.md"])
def test_another_host_takes_the_window_over(dsn: str, conn: Conn, page: str, tmp_path: Path) -> None:
    """Two hosts run the documented line (with a shorter ttl, to wait less); the one that works is killed.

    Seen to fail: the line had no --wait, and the other host, denied held, had gone.
    """
    (arguments,) = LINE.findall((ROOT / page).read_text())
    line = shlex.split(arguments)[:-1]
    done = tmp_path / "done"
    command = [
        "sh",
        "-c",
        'echo "$PGONCE_WINDOW_START"; read go; echo "$PGONCE_WINDOW_START" >> "$0"',
        str(done),
    ]

    def host(name: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [PGONCE, *line, "--ttl", "2s", "--owner", name, "-v", "--", *command],
            env=environment(dsn),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    wait_until(lambda: time.time() % 600 < 580, timeout=60)  # so that the window does not end meanwhile
    with host("a") as a:
        window = line_of(a)
        with host("b") as b:
            asks = (
                "select query like '%%claim%%' as asks from pg_stat_activity where application_name like %s"
            )
            wait_until(lambda: conn.execute(asks, (f"%:{b.pid}",)).fetchall() == [{"asks": True}])
            a.kill()
            assert line_of(b) == window
            _, said = b.communicate("go\n", timeout=60)
            assert b.returncode == 0, said
    (run,) = conn.execute("select state, attempt, owner from pgonce.runs").fetchall()
    assert run == {"state": "done", "attempt": 2, "owner": "b"}
    assert done.read_text() == f"{window}\n"
