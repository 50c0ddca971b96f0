"""Sessions and servers for the tests of the rules."""

from __future__ import annotations

import os
import socket
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import dict_row

from pgonce._embedded import Server, _end_with_parent, _server_account
from tests.helpers import OWNER, SQL, Conn, pgbouncer_program, psql, value, wait_until

Open = Callable[..., Conn]
Background = Callable[..., Future[Any]]


@pytest.fixture
def session(connect: Open) -> Open:
    """``connect`` for a worker, with a statement_timeout that only ends what would hang for ever."""

    def open_session(role: str = "worker", **kwargs: Any) -> Conn:
        return connect(role, options="-c statement_timeout=20s", **kwargs)

    return open_session


@pytest.fixture
def conn(session: Open) -> Conn:
    """A session of the owner's."""
    return session(OWNER)


@pytest.fixture
def a(session: Open) -> Conn:
    """A worker's session."""
    return session()


@pytest.fixture
def b(session: Open) -> Conn:
    """Another session of the same worker."""
    return session()


@pytest.fixture
def c(session: Open) -> Conn:
    """A third one."""
    return session()


@pytest.fixture
def superuser(pg_server: Server, dbname: str) -> Iterator[Conn]:
    """A superuser's session in the test's database."""
    with psycopg.connect(pg_server.dsn(dbname), autocommit=True, row_factory=dict_row) as conn:
        yield conn


@pytest.fixture
def background() -> Iterator[Background]:
    """Run something in a thread of its own: ``background(function, …)`` returns a future."""
    with ThreadPoolExecutor(64) as pool:
        yield pool.submit


class Durable(Server):
    """A server of its own that loses nothing it has acknowledged, for tests that let it crash, wait or be
    copied.

    Its WAL writer sleeps: what a commit does not flush itself is lost in an immediate shutdown.
    """

    def __init__(self) -> None:
        super().__init__(
            {"wal_writer_delay": "10s", "autovacuum": "off", "log_line_prefix": "%m [%p] %q%u@%d "}
        )

    def install(self) -> None:
        with psycopg.connect(self.dsn(), autocommit=True) as superuser:
            for role in (OWNER, "worker"):
                superuser.execute(f"create role {role} login password '{self.password}'")
            superuser.execute(f"create database durable owner {OWNER}")
        psql(
            self.dsn("durable", OWNER),
            "-f",
            SQL / "install.sql",
            "-c",
            "select pgonce.grant_worker('worker')",
        )

    def open(self, role: str = "worker") -> Conn:
        return psycopg.connect(self.dsn("durable", role), autocommit=True, row_factory=dict_row)

    @contextmanager
    def standby_away(self) -> Iterator[Conn]:
        """Within the block each commit waits for a synchronous standby that is away; yields a superuser."""
        setting = "select current_setting('synchronous_standby_names')"
        with self.open(self.user) as superuser:

            def reload(command: str, names: str) -> None:
                superuser.execute(f"alter system {command}")
                superuser.execute("select pg_reload_conf()")
                wait_until(lambda: value(superuser, setting) == names)

            reload("set synchronous_standby_names = 'nobody'", "nobody")
            try:
                yield superuser
            finally:
                reload("reset synchronous_standby_names", "")


@pytest.fixture(scope="session")
def durable() -> Iterator[Durable]:
    with Durable() as server:
        server.install()
        yield server


class Standby(Server):
    """A hot standby of the durable server: a copy of it, where others make a new cluster."""

    def __init__(self, primary: Durable) -> None:
        super().__init__()
        self._primary = primary
        self.password = primary.password

    def _run(self, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        if program == "initdb":
            program = "pg_basebackup"
            arguments = (f"-D{self._data}", "-R", "-cfast", "--no-sync", "-d", self._primary.dsn())
        return super()._run(program, *arguments)


@pytest.fixture
def standby(durable: Durable) -> Iterator[Standby]:
    with Standby(durable) as server:
        yield server


@pytest.fixture(scope="session")
def pgbouncer(pg_server: Server) -> Iterator[int]:
    """Port of a PgBouncer in transaction mode, with two server connections for each database and role."""
    program = pgbouncer_program()
    if program is None:
        pytest.fail("this test needs PgBouncer: apt-get install -y pgbouncer")
    with tempfile.TemporaryDirectory(prefix="pgbouncer-") as home, socket.socket() as probe:
        probe.bind((pg_server.host, 0))
        port = int(probe.getsockname()[1])
        probe.close()
        users, ini = Path(home, "users"), Path(home, "ini")
        users.write_text("".join(f'"{role}" "{pg_server.password}"\n' for role in (OWNER, "worker")))
        ini.write_text(f"""
            [databases]
            * = host={pg_server.host} port={pg_server.port}
            [pgbouncer]
            listen_addr = {pg_server.host}
            listen_port = {port}
            unix_socket_dir =
            auth_type = scram-sha-256
            auth_file = {users}
            pool_mode = transaction
            default_pool_size = 2
            max_client_conn = 100
        """)
        account = _server_account()  # PgBouncer does not run as root either
        if account:
            for path in (home, users, ini):
                os.chown(path, account["user"], account["group"])
        command = [program, "-q", str(ini)]
        with subprocess.Popen(
            command, stderr=subprocess.DEVNULL, preexec_fn=_end_with_parent(), **account
        ) as process:
            try:
                wait_until(lambda: process.poll() is not None or listens(pg_server.host, port))
                assert process.poll() is None, "PgBouncer did not start"
                yield port
            finally:
                process.terminate()


def listens(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


@pytest.fixture
def pooled(pgbouncer: int, dsn_for: Callable[[str], str]) -> Iterator[Open]:
    """A function that opens a session through PgBouncer, as a worker unless said otherwise."""
    with ExitStack() as stack:

        def open_session(role: str = "worker") -> Conn:
            conn = psycopg.connect(
                make_conninfo(dsn_for(role), port=pgbouncer),
                autocommit=True,
                row_factory=dict_row,
                prepare_threshold=None,
            )
            stack.callback(conn.close)
            return conn

        yield open_session
