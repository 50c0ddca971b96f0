"""Each revision undoes itself, and takes nothing along that is not pgonce's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from alembic.migration import MigrationContext
from alembic.operations import Operations
from psycopg import connect
from psycopg.errors import DependentObjectsStillExist
from sqlalchemy import NullPool, create_engine
from sqlalchemy.exc import DBAPIError

from pgonce import schema
from tests.helpers import ROOT, SQL, psql
from tests.migrations.catalog import OBJECTS, read


def run(dsn: str, function: Callable[..., None], **arguments: int) -> None:
    """As in a revision of a host's."""
    engine = create_engine("postgresql+psycopg://", creator=lambda: connect(dsn), poolclass=NullPool)
    with engine.begin() as conn, Operations.context(MigrationContext.configure(conn)):
        function(**arguments)


@pytest.mark.parametrize("revision", range(1, schema.newest() + 1))
def test_each_revision_undoes_itself(empty_dsn: str, revision: int) -> None:
    for earlier in range(1, revision):
        run(empty_dsn, schema.upgrade, since=earlier - 1, to=earlier)
    before = read(empty_dsn), read(empty_dsn, OBJECTS)
    run(empty_dsn, schema.upgrade, since=revision - 1, to=revision)
    between = read(empty_dsn), read(empty_dsn, OBJECTS)
    assert between != before
    run(empty_dsn, schema.downgrade, since=revision, to=revision - 1)
    assert (read(empty_dsn), read(empty_dsn, OBJECTS)) == before
    run(empty_dsn, schema.upgrade, since=revision - 1, to=revision)
    assert (read(empty_dsn), read(empty_dsn, OBJECTS)) == between


@pytest.mark.parametrize(
    "statement",
    [
        "create view public.my_runs as select * from pgonce.runs",
        "create table public.answer (claim pgonce.claim)",
        "create table pgonce.not_yours (id integer)",
        "create function pgonce.not_yours() returns integer language sql as 'select 1'",
    ],
)
def test_what_the_host_built_on_it_stays(empty_dsn: str, statement: str) -> None:
    """Seen to fail with `drop schema pgonce cascade`, which takes all of these along."""
    run(empty_dsn, schema.upgrade, to=schema.newest())
    with connect(empty_dsn) as conn:
        conn.execute(statement.encode())
    before = read(empty_dsn, OBJECTS)
    with pytest.raises(DBAPIError) as raised:
        run(empty_dsn, schema.downgrade, since=schema.newest(), to=0)
    assert isinstance(raised.value.orig, DependentObjectsStillExist)
    assert read(empty_dsn, OBJECTS) == before


def test_without_python(empty_dsn: str, create_database: Callable[..., str]) -> None:
    """As sql/README says: the frozen files are plain SQL, one after the other, and back."""
    installed = create_database()
    psql(installed, "-f", SQL / "install.sql")
    before = read(empty_dsn, OBJECTS)
    versions = ROOT / "migrations" / "versions"
    for script in sorted(versions.glob("*.up.sql")):
        psql(empty_dsn, "-1", "-f", script)
    assert read(empty_dsn) == read(installed)
    for script in sorted(versions.glob("*.down.sql"), reverse=True):
        psql(empty_dsn, "-1", "-f", script)
    assert read(empty_dsn, OBJECTS) == before
