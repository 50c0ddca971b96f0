"""The command line as its users start it: real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

PGONCE = str(Path(sys.executable).with_name("pgonce"))

Process = subprocess.Popen[str]


class Start(Protocol):
    def __call__(self, *arguments: str, dsn: str | None = None, **kwargs: Any) -> Process: ...


class Run(Protocol):
    def __call__(
        self, *arguments: str, dsn: str | None = None, **kwargs: Any
    ) -> subprocess.CompletedProcess[str]: ...


def environment(dsn: str | None) -> dict[str, str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    return env if dsn is None else {**env, "PGONCE_DSN": dsn}


@pytest.fixture
def start(dsn: str) -> Iterator[Start]:
    """A function that starts ``pgonce`` with this test's database, unless it is given another or None."""
    with ExitStack() as stack:

        def start(*arguments: str, dsn: str | None = dsn, **kwargs: Any) -> Process:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            env = environment(dsn) | kwargs.pop("env", {})
            command = [*kwargs.pop("under", ()), PGONCE, *arguments]
            process = stack.enter_context(subprocess.Popen(command, text=True, env=env, **(pipes | kwargs)))
            stack.callback(_kill, process)
            return process

        yield start


@pytest.fixture
def run(start: Start) -> Run:
    """The same, run to its end."""

    def run(*arguments: str, **kwargs: Any) -> subprocess.CompletedProcess[str]:
        process = start(*arguments, **kwargs)
        stdout, stderr = process.communicate()
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    return run


def _kill(process: Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGCONT)
        process.kill()


def alive(pid: int) -> bool:
    """Whether there is such a process, and it is not one that has ended and is still to be reaped."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False


def line_of(process: Process) -> str:
    """The next line of its output."""
    assert process.stdout is not None
    return process.stdout.readline().strip()


def end_of(process: Process, stdin: str | None = None) -> tuple[int, str]:
    """Its exit status, and what it said to people."""
    _, stderr = process.communicate(stdin, timeout=60)
    return process.returncode, stderr
