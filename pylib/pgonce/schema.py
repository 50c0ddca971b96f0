"""The schema in a database: the ways in for a host application, for ``pgonce migrate`` and for psql.

Every way runs the same frozen files, ``migrations/versions/NNNN.up.sql`` and ``.down.sql``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg.rows import tuple_row

if TYPE_CHECKING:
    from sqlalchemy import Connection

__all__ = ["SchemaError", "check", "downgrade", "include_name", "migrate", "newest", "sql", "upgrade"]

VERSION_TABLE = "pgonce_version"
MIGRATING = "select pg_advisory_xact_lock(hashtextextended('pgonce migrate', 0))"

_VISIBLE = """
    select exists (
        select from pg_catalog.pg_class as c
        join pg_catalog.pg_namespace as n on n.oid = c.relnamespace
        where n.nspname = 'pgonce' and c.relname = :name and pg_catalog.pg_table_is_visible(c.oid))
"""

_INSTALLED = """
    select exists (
        select from pg_catalog.pg_proc as p
        join pg_catalog.pg_namespace as n on n.oid = p.pronamespace
        where n.nspname = 'pgonce' and p.proname = 'schema_version')
"""


class SchemaError(RuntimeError):
    """The schema in the database is missing or too old, or cannot be migrated; the text says what to do."""


def newest() -> int:
    """The newest revision that this package brings."""
    versions = files("pgonce.migrations.versions")
    return max(int(path.name[:4]) for path in versions.iterdir() if path.name.endswith(".up.sql"))


def upgrade(*, to: int, since: int = 0) -> None:
    """Bring the schema from revision ``since`` to ``to``, in a revision of the host's own Alembic history.

    Nothing is read from the database, so ``alembic upgrade --sql`` works too.
    """
    if not 0 <= since < to <= newest():
        raise ValueError(f"upgrade(since={since}, to={to}): since < to <= {newest()} is needed")
    for revision in range(since + 1, to + 1):
        _run(f"{revision:04}.up.sql")


def downgrade(*, since: int, to: int) -> None:
    """Take the schema back from revision ``since`` to ``to``; 0 is: not installed."""
    if not 0 <= to < since <= newest():
        raise ValueError(f"downgrade(since={since}, to={to}): to < since <= {newest()} is needed")
    for revision in range(since, to, -1):
        _run(f"{revision:04}.down.sql")


def check(conn: psycopg.Connection[Any] | Connection) -> None:
    """Raise ``SchemaError``, which says what to paste, when the schema is missing or behind.

    ``conn`` is psycopg's or SQLAlchemy's. A schema that is newer than this package is fine.
    """
    installed = _installed(conn)
    if installed >= newest():
        return
    since = f"since={installed}, " if installed else ""
    there = f"at revision {installed}, and this pgonce needs {newest()}" if installed else "not installed"
    raise SchemaError(
        f"schema pgonce is {there}: run `pgonce migrate` as its owner,\n"
        "or put this into a new revision of your own Alembic history:\n\n"
        "    from pgonce import schema\n\n"
        f"    def upgrade() -> None:\n        schema.upgrade({since}to={newest()})\n\n"
        f"    def downgrade() -> None:\n        schema.downgrade(since={newest()}, to={installed})\n"
    )


def sql() -> str:
    """The newest schema as one script in one transaction, for psql or any other client."""
    ups = [_read(f"{revision:04}.up.sql") for revision in range(1, newest() + 1)]
    return "\n".join(["begin;\n", *ups, "commit;\n"])


def migrate(dsn: str) -> tuple[int, int]:
    """Install or upgrade the schema with a version table of its own; returns the revisions before and after.

    Of several at the same time one does it, and the others wait and find it done. The database's errors are
    psycopg's.
    """
    try:
        from alembic import command
        from alembic.config import Config
        from sqlalchemy import StaticPool, create_engine
        from sqlalchemy.exc import DBAPIError
    except ImportError as error:
        raise SchemaError("migrating needs Alembic: pip install 'pgonce[migrate]'") from error

    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(files("pgonce.migrations")).replace("%", "%%"))
    with psycopg.connect(dsn, prepare_threshold=None, client_encoding="UTF8") as session:
        engine = create_engine(
            "postgresql+psycopg://",
            creator=lambda: session,
            poolclass=StaticPool,
            isolation_level="READ COMMITTED",  # so that after the wait we see what the one before us has done
        )
        try:
            with engine.begin() as conn:
                conn.exec_driver_sql(MIGRATING)
                installed = _installed(conn)
                if installed >= newest():
                    return installed, installed
                config.attributes["connection"] = conn
                if installed:  # by whomever: the schema knows best
                    command.stamp(config, f"pgonce_{installed:04}")
                command.upgrade(config, "head")
                return installed, newest()
        except DBAPIError as error:
            raise (error.orig or error) from error


def create_schema(conn: Connection) -> None:
    """Create the empty schema if there is none, as the first statement of the first revision does."""
    conn.exec_driver_sql(next(_statements(_read("0001.up.sql"))))


def include_name(name: str | None, type_: str, parent_names: Mapping[str, str | None]) -> bool:
    """For Alembic's ``context.configure(include_name=…)``: autogenerate leaves alone what is pgonce's."""
    if type_ == "schema":
        return name != "pgonce"
    if type_ == "table" and parent_names["schema_name"] is None and name in _tables():
        from alembic import context
        from sqlalchemy import text

        # With pgonce in search_path, its tables seem to have no schema.
        return not context.get_bind().scalar(text(_VISIBLE), {"name": name})
    return True


def _installed(conn: psycopg.Connection[Any] | Connection) -> int:
    """The revision in the database; 0 when there is none."""

    def ask(query: str) -> Any:
        if isinstance(conn, psycopg.Connection):
            row = conn.cursor(row_factory=tuple_row).execute(query).fetchone()
        else:
            row = conn.exec_driver_sql(query).fetchone()
        return row[0] if row else None

    return int(ask("select pgonce.schema_version()")) if ask(_INSTALLED) else 0


def _read(name: str) -> str:
    return (files("pgonce.migrations.versions") / name).read_text(encoding="utf-8")


def _run(name: str) -> None:
    from alembic import op
    from sqlalchemy import text

    for statement in _statements(_read(name)):
        op.execute(text(statement.replace(":", r"\:")))


def _statements(script: str) -> Iterator[str]:
    """Split at lines that end in a semicolon, outside comments and ``$$``."""
    lines: list[str] = []
    quoted = False
    for line in script.splitlines():
        lines.append(line)
        quoted ^= line.count("$$") % 2 == 1
        if not quoted and not line.lstrip().startswith("--") and line.endswith(";"):
            yield "\n".join(lines).strip().removesuffix(";")
            lines.clear()


def _tables() -> set[str]:
    created = re.compile(r"^create (?:unlogged )?table pgonce\.(\w+)", re.MULTILINE)
    return {VERSION_TABLE, *created.findall(sql())}
