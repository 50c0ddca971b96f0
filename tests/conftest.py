"""A private server for each process of the tests, and in it a database for each test: a clone of one into
which sql/install.sql was installed.

The server is pgonce's own launcher (pytest-postgresql's cannot start as root); pytest-postgresql makes the
template, and the clones are made here: each has a name of its own, so that a process which a test left behind
cannot disturb the next one, and belongs to a role that is no superuser.
"""

from __future__ import annotations

import itertools
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.rows import dict_row
from pytest_postgresql import factories
from pytest_postgresql.executors import NoopExecutor

from pgonce._embedded import Server
from tests.helpers import OWNER, SQL, Clock, Conn, pgbouncer_program, psql

ROLES = (OWNER, "worker", "worker2", "reader", "stranger")

# Nothing of a plain test has to survive a power cut. The log names the database: a test finds its own lines.
SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "autovacuum": "off",
    "max_connections": "200",
    "log_line_prefix": "%m [%p] %q%u@%d ",
}


# What a shell starts in the background ignores SIGINT, what nohup starts SIGHUP, and so would all that the
# tests start and send them to. A handler, unlike that, is not inherited by a program.
for _signal in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
    if signal.getsignal(_signal) == signal.SIG_IGN:
        signal.signal(_signal, lambda signum, frame: None)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Without PgBouncer its tests are left out; in CI they fail."""
    if pgbouncer_program() is None and "CI" not in os.environ:
        left_out = [item for item in items if "pgbouncer" in getattr(item, "fixturenames", ())]
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if pgbouncer_program() is None and "CI" not in os.environ:
        terminalreporter.write_line(
            "PgBouncer is not installed (apt-get install pgbouncer): its tests are left out."
        )


class SharedServer(Server):
    """The launcher, with the three attributes that pytest-postgresql asks for besides."""

    options = ""
    maintenance_dbname = "postgres"
    template_dbname: str | None = None


def roomy_memory() -> Path | None:
    """Where the data go: memory when there is some, else the temporary folder."""
    shm = Path("/dev/shm")
    roomy = shm.is_dir() and os.access(shm, os.W_OK) and shutil.disk_usage(shm).free > 1 << 30
    return shm if roomy else None


@pytest.fixture(scope="session")
def pg_server() -> Iterator[SharedServer]:
    with SharedServer(SETTINGS, roomy_memory()) as server:
        with psycopg.connect(server.dsn(), autocommit=True) as admin:
            for role in ROLES:
                admin.execute(f"create role {role} login password '{server.password}'")
            admin.execute(f"grant pg_read_all_stats to {OWNER}")  # tests look at who waits for whom
        yield server


def install(*, host: str, port: int, user: str, dbname: str, password: str, **_: Any) -> None:
    """Fill the template, as the owner would."""
    dsn = make_conninfo(host=host, port=port, user=user, dbname=dbname, password=password)
    psql(dsn, "-c", f"alter database {dbname} owner to {OWNER}")
    owner = make_conninfo(dsn, user=OWNER)
    psql(owner, "-f", SQL / "install.sql")
    psql(
        owner,
        "-c",
        "select pgonce.grant_worker('worker'), pgonce.grant_worker('worker2'), pgonce.grant_reader('reader')",
    )


template = factories.postgresql_noproc(depends_on="pg_server", dbname="pgonce", load=[install])

_numbers = itertools.count(1)


@pytest.fixture(scope="session")
def maintenance_session(pg_server: SharedServer) -> Iterator[psycopg.Connection[Any]]:
    """The superuser's session, for what no owner may do."""
    with psycopg.connect(pg_server.dsn(), autocommit=True) as conn:
        yield conn


@pytest.fixture
def create_database(
    pg_server: SharedServer, maintenance_session: psycopg.Connection[Any]
) -> Iterator[Callable[..., str]]:
    """A function that makes a database of the owner's, empty or from a template, and returns its dsn."""
    with ExitStack() as stack:

        def create(template_dbname: str = "template1", options: str = "") -> str:
            name = f"t{next(_numbers)}"
            maintenance_session.execute(
                f"create database {name} owner {OWNER} template {template_dbname} {options}"
            )
            stack.callback(maintenance_session.execute, f"drop database {name} with (force)")
            return pg_server.dsn(name, user=OWNER)

        yield create


@pytest.fixture
def encoded_dsn(create_database: Callable[..., str]) -> Callable[[str], str]:
    """A function that makes a database without pgonce, in that encoding."""
    return lambda encoding: create_database("template0", f"encoding '{encoding}' lc_collate 'C' lc_ctype 'C'")


@pytest.fixture
def empty_dsn(create_database: Callable[..., str]) -> str:
    """A database without pgonce, as its owner."""
    return create_database()


@pytest.fixture
def dsn(create_database: Callable[..., str], template: NoopExecutor) -> str:
    """This test's database, as the schema's owner."""
    return create_database(template.template_dbname)


@pytest.fixture
def dsn_for(dsn: str) -> Callable[[str], str]:
    """The same database for another role."""
    return lambda role: make_conninfo(dsn, user=role)


@pytest.fixture
def connect(dsn_for: Callable[[str], str]) -> Iterator[Callable[..., Conn]]:
    """A function that opens a session of its own, closed when the test ends."""
    with ExitStack() as stack:

        def open_session(role: str = OWNER, *, autocommit: bool = True, **kwargs: Any) -> Conn:
            conn = psycopg.connect(
                dsn_for(role), autocommit=autocommit, row_factory=dict_row, prepare_threshold=None, **kwargs
            )
            stack.callback(conn.close)
            return conn

        yield open_session


@pytest.fixture
def conn(connect: Callable[..., Conn]) -> Conn:
    """A session of the owner's."""
    return connect()


@pytest.fixture
def dbname(dsn: str) -> str:
    """The name of this test's database, as the server's log writes it."""
    return str(conninfo_to_dict(dsn)["dbname"])


@pytest.fixture
def clock(connect: Callable[..., Conn]) -> Clock:
    """The database's clock in the test's hands."""
    return Clock(connect())
