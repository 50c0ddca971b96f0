"""One database for all tests of the schedule engine: it reads no table and writes nothing."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
from psycopg.rows import dict_row
from pytest_postgresql.executors import NoopExecutor
from pytest_postgresql.janitor import DatabaseJanitor

from tests.conftest import SharedServer
from tests.helpers import OWNER, Conn


@pytest.fixture(scope="session")
def engine_dbname(pg_server: SharedServer, template: NoopExecutor) -> Iterator[str]:
    with DatabaseJanitor(
        user=pg_server.user,
        host=pg_server.host,
        port=pg_server.port,
        password=pg_server.password,
        dbname="schedule",
        template_dbname=template.template_dbname,
    ) as janitor:
        yield janitor.dbname


def session(pg_server: SharedServer, dbname: str, role: str) -> Conn:
    dsn = pg_server.dsn(dbname, user=role)
    return psycopg.connect(
        dsn, autocommit=True, row_factory=dict_row, prepare_threshold=None, options="-c TimeZone=UTC"
    )


@pytest.fixture(scope="session")
def worker_session(pg_server: SharedServer, engine_dbname: str) -> Iterator[Conn]:
    with session(pg_server, engine_dbname, "worker") as conn:
        yield conn


@pytest.fixture
def worker(worker_session: Conn) -> Conn:
    """A worker's session, with its settings as they were at its start."""
    worker_session.execute("reset all")
    return worker_session


@pytest.fixture(scope="session")
def owner(pg_server: SharedServer, engine_dbname: str) -> Iterator[Conn]:
    """A session of the owner's, who may call the helpers."""
    with session(pg_server, engine_dbname, OWNER) as conn:
        yield conn
