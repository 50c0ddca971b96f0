"""The command: its session, the signals that go on to it, and the end of all that descends from it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FORWARDED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

_LINUX = sys.platform == "linux"
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Stopped(BaseException):
    """A signal came before there was a command to forward it to."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class Signals:
    """TERM, INT and HUP are kept until they are asked for: nothing granted is forgotten because one came.

    Before there is a command to forward them to, ``pause`` raises ``Stopped``, a second signal at once.
    One that is ignored (nohup) stays ignored. Ctrl-Z does nothing: whoever is stopped cannot keep a lease.
    """

    def __enter__(self) -> Signals:
        self._impatient = False
        self._forwarding = False
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        wanted = [s for s in FORWARDED if signal.getsignal(s) is not signal.SIG_IGN]
        self._former = {s: signal.signal(s, self._on_signal) for s in wanted}
        for s in (signal.SIGCHLD, signal.SIGTSTP):  # not SIG_IGN, which the command would inherit
            self._former[s] = signal.signal(s, lambda signum, frame: None)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        for signum, handler in self._former.items():
            signal.signal(signum, handler)
        self._reader.close()
        self._writer.close()

    def _on_signal(self, signum: int, frame: object) -> None:
        if self._impatient and not self._forwarding:
            raise Stopped(signum)
        self._impatient = True

    def forward(self) -> None:
        """From now on there is a command: ``wait`` hands them out."""
        self._forwarding = True

    def pause(self, seconds: float) -> None:
        """Wait for so long at most, or until ``wake``; ``Stopped`` if a signal has come."""
        for signum in self.wait(seconds):
            raise Stopped(signum)

    def wait(self, seconds: float) -> list[int]:
        """Wait until something happens, for so long at most; returns the signals to forward."""
        select.select([self._reader], [], [], max(0.0, seconds))
        with contextlib.suppress(BlockingIOError):
            return [number for number in self._reader.recv(4096) if number in FORWARDED]
        return []

    def wake(self) -> None:
        """End a wait; for another thread."""
        with contextlib.suppress(OSError):  # full: it ends anyway; closed: nobody waits
            self._writer.send(b"\0")


class Command:
    """A running command and its descendants.

    On Linux those who leave the group are found too, since we are their subreaper, and the command is killed
    when we are. Elsewhere the group is all that is known. No other thread may run while it is made: it forks.
    """

    def __init__(self, arguments: Sequence[str], env: Mapping[str, str]) -> None:
        if _LINUX:
            _prctl(_PR_SET_CHILD_SUBREAPER, 1)
            self._not_ours = {pid for pid, (parent, _) in _processes().items() if parent == os.getpid()}
        self._process = subprocess.Popen(
            arguments, env=env, start_new_session=True, preexec_fn=_end_with_us() if _LINUX else None
        )

    @property
    def status(self) -> int | None:
        """The command's own: its exit code, less than 0 for a signal, None while it runs."""
        return self._process.poll()

    def running(self) -> bool:
        """Whether it or anything it left behind runs."""
        ended = self.status is not None  # before the look at what it may have started just before
        return self._left_behind() or not ended

    def forward(self, signum: int) -> None:
        """To the command's group."""
        if self.status is None or not _LINUX:
            _kill(os.killpg, self._process.pid, signum)

    def end(self, signum: int) -> None:
        """To the group and to every descendant."""
        self.forward(signum)
        for pid in self._descendants() if _LINUX else ():
            if pid != self._process.pid:
                _kill(os.kill, pid, signum)

    def _left_behind(self) -> bool:
        if _LINUX:
            return any(pid != self._process.pid for pid in self._descendants())
        return self.status is not None and _kill(os.killpg, self._process.pid, 0)

    def _descendants(self) -> list[int]:
        """The pids of all that descends from the command and has not ended; orphans that have are reaped."""
        children: dict[int, list[int]] = {}
        processes = _processes()
        for pid, (parent, _) in processes.items():
            children.setdefault(parent, []).append(pid)
        found = [pid for pid in children.get(os.getpid(), ()) if pid not in self._not_ours]
        for pid in found:  # grows
            found += children.get(pid, ())
        living = []
        for pid in found:
            parent, state = processes[pid]
            if state != "Z":
                living.append(pid)
            elif parent == os.getpid() and pid != self._process.pid:
                os.waitpid(pid, os.WNOHANG)
        return living


def _kill(how: Callable[[int, int], None], number: int, signum: int) -> bool:
    """Whether there was anything to send it to."""
    try:
        how(number, signum)
    except ProcessLookupError:
        return False
    except PermissionError:  # it runs as somebody else
        return True
    return True


def _processes() -> dict[int, tuple[int, str]]:
    """The parent and the state of every process."""
    processes = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has gone
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
                processes[int(entry.name)] = int(parent), state
    return processes


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


def _end_with_us() -> Callable[[], None]:
    """What the child does before exec, so that it is killed when we are."""
    prctl = ctypes.CDLL(None).prctl  # bound before the fork
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
