"""`pgonce migrate`, and what `schema.check` says."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import errors
from psycopg.rows import dict_row
from sqlalchemy import create_engine
from sqlalchemy.pool import NullPool

from pgonce import schema
from pgonce._embedded import Server
from tests.helpers import SQL, Conn, psql, value, wait_until
from tests.migrations.catalog import OBJECTS, read
from tests.migrations.conftest import NextRelease

NEWEST = schema.newest()


@pytest.fixture
def owner(empty_dsn: str) -> Iterator[Conn]:
    with psycopg.connect(empty_dsn, autocommit=True, row_factory=dict_row) as conn:
        yield conn


def test_again_changes_nothing(empty_dsn: str) -> None:
    assert schema.migrate(empty_dsn) == (0, NEWEST)
    before = read(empty_dsn)
    assert schema.migrate(empty_dsn) == (NEWEST, NEWEST)
    assert read(empty_dsn) == before


def test_five_replicas_at_once(empty_dsn: str, owner: Conn) -> None:
    """Case 44. Seen to fail without the lock: UniqueViolation and DuplicateTable in four of five."""
    program = "import sys; from pgonce import schema; print(*schema.migrate(sys.argv[1]))"
    with owner.transaction():
        owner.execute(schema.MIGRATING)
        replicas = [
            subprocess.Popen([sys.executable, "-c", program, empty_dsn], stdout=subprocess.PIPE, text=True)
            for _ in range(5)
        ]
        waiting = "select count(*) from pg_locks where locktype = 'advisory' and not granted"
        wait_until(lambda: value(owner, waiting) == 5, timeout=60)
    answers = sorted(replica.communicate()[0].strip() for replica in replicas)
    assert answers == sorted([f"0 {NEWEST}", *[f"{NEWEST} {NEWEST}"] * 4])
    assert [replica.returncode for replica in replicas] == [0] * 5


def test_whoever_installed_it_migrate_goes_on_from_there(
    empty_dsn: str, create_database: Callable[..., str], next_release: NextRelease
) -> None:
    psql(empty_dsn, script=schema.sql())
    next_release()
    assert schema.migrate(empty_dsn) == (NEWEST, NEWEST + 1)
    assert schema.migrate(empty_dsn) == (NEWEST + 1, NEWEST + 1)
    anew = create_database()
    assert schema.migrate(anew) == (0, NEWEST + 1)
    assert read(anew) == read(empty_dsn)


def test_a_newer_schema_is_left_alone(
    empty_dsn: str, owner: Conn, next_release: NextRelease, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rolling deploy: the old program starts once more after the new one has migrated."""
    next_release()
    schema.migrate(empty_dsn)
    monkeypatch.undo()
    before = read(empty_dsn)
    assert schema.migrate(empty_dsn) == (NEWEST + 1, NEWEST + 1)
    assert read(empty_dsn) == before
    schema.check(owner)


def test_a_schema_of_somebody_elses(empty_dsn: str, owner: Conn, pg_server: Server) -> None:
    """Rule 13: nobody who owns the schema may be handed functions that run with our rights."""
    with psycopg.connect(pg_server.dsn(owner.info.dbname), autocommit=True) as admin:
        admin.execute("create schema pgonce authorization stranger; grant all on schema pgonce to public")
    before = read(empty_dsn, OBJECTS)
    with pytest.raises(
        errors.InsufficientPrivilege, match="schema pgonce exists and belongs to another role"
    ):
        schema.migrate(empty_dsn)
    with pytest.raises(AssertionError, match="schema pgonce exists and belongs to another role"):
        psql(empty_dsn, script=schema.sql())
    assert read(empty_dsn, OBJECTS) == before


def test_a_schema_in_which_others_may_create(empty_dsn: str, owner: Conn) -> None:
    """Their overloads could be called with our rights. Seen to fail: one of _next_token(integer) was."""
    owner.execute("create schema pgonce; grant usage, create on schema pgonce to stranger")
    before = read(empty_dsn, OBJECTS)
    with pytest.raises(errors.InsufficientPrivilege, match="others than its owner may create objects"):
        schema.migrate(empty_dsn)
    with pytest.raises(AssertionError, match="others than its owner may create objects"):
        psql(empty_dsn, "-f", SQL / "install.sql")
    assert read(empty_dsn, OBJECTS) == before

    owner.execute("revoke create on schema pgonce from stranger")
    schema.migrate(empty_dsn)
    schema.check(owner)


def test_a_failed_migration_leaves_nothing(empty_dsn: str, owner: Conn) -> None:
    owner.execute("create schema pgonce; create table pgonce.lease (mine integer)")
    before = read(empty_dsn, OBJECTS)
    with pytest.raises(errors.DuplicateTable):
        schema.migrate(empty_dsn)
    assert read(empty_dsn, OBJECTS) == before


def test_no_server_is_psycopgs_error() -> None:
    with pytest.raises(psycopg.OperationalError):
        schema.migrate("host=127.0.0.1 port=1 connect_timeout=5")


def test_without_alembic_it_says_what_to_install(empty_dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "alembic", None)
    with pytest.raises(schema.SchemaError, match=r"pip install 'pgonce\[migrate\]'"):
        schema.migrate(empty_dsn)


def test_importing_it_loads_no_alembic() -> None:
    program = "import sys, pgonce.schema; print([m for m in ('alembic', 'sqlalchemy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_check_says_what_to_paste(empty_dsn: str, owner: Conn, next_release: NextRelease) -> None:
    with pytest.raises(schema.SchemaError, match="not installed") as raised:
        schema.check(owner)
    assert f"\n        schema.upgrade(to={NEWEST})\n" in str(raised.value)
    assert f"\n        schema.downgrade(since={NEWEST}, to=0)\n" in str(raised.value)
    schema.migrate(empty_dsn)
    schema.check(owner)
    next_release()
    with pytest.raises(
        schema.SchemaError, match=f"at revision {NEWEST}, and this pgonce needs {NEWEST + 1}"
    ) as raised:
        schema.check(owner)
    assert f"\n        schema.upgrade(since={NEWEST}, to={NEWEST + 1})\n" in str(raised.value)
    assert f"\n        schema.downgrade(since={NEWEST + 1}, to={NEWEST})\n" in str(raised.value)


def test_check_takes_sqlalchemys_connection_too(empty_dsn: str) -> None:
    engine = create_engine(
        "postgresql+psycopg://", creator=lambda: psycopg.connect(empty_dsn), poolclass=NullPool
    )
    with engine.connect() as conn:
        with pytest.raises(schema.SchemaError, match="not installed"):
            schema.check(conn)
        schema.migrate(empty_dsn)
        schema.check(conn)
