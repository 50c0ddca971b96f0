"""A host application with an Alembic history of its own, in a folder, as migrations/README.md tells it."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config

INI = """
[alembic]
script_location = %(here)s/alembic
version_locations =
    %(here)s/alembic/versions{locations}
path_separator = newline
"""

ENV = """
from alembic import context
from sqlalchemy import Column, Integer, MetaData, Table, Text, create_engine
from sqlalchemy.pool import NullPool

from pgonce import schema

config = context.config.attributes
metadata = MetaData()
Table("customer", metadata, Column("id", Integer, primary_key=True), Column("name", Text))
Table("invoice", metadata, Column("id", Integer, primary_key=True), schema="billing")
if not config["include_schemas"]:
    metadata.remove(metadata.tables["billing.invoice"])
if "table" in config:
    Table(config["table"], metadata, Column("id", Integer, primary_key=True))


def include_name(name, type_, parent_names):
    if type_ == "schema" and name == "public" and config["search_path"].startswith("pgonce"):
        return False  # what is in search_path is seen without a schema; it need not be seen twice
    return not config["include_name"] or schema.include_name(name, type_, parent_names)


options = {
    "target_metadata": metadata,
    "include_schemas": config["include_schemas"],
    "include_name": include_name,
}

if context.is_offline_mode():
    context.configure(dialect_name="postgresql", **options)
    with context.begin_transaction():
        context.run_migrations()
else:
    engine = create_engine(
        config["url"], poolclass=NullPool, connect_args={"options": f"-c search_path={config['search_path']}"}
    )
    with engine.connect() as connection:
        context.configure(connection=connection, **options)
        with context.begin_transaction():
            context.run_migrations()
"""

TEMPLATE = """
revision = ${repr(up_revision)}
down_revision = ${repr(down_revision)}

def upgrade():
    ${upgrades if upgrades else "pass"}

def downgrade():
    ${downgrades if downgrades else "pass"}
"""

PGONCE = """
from pgonce import schema

revision = "a1"
down_revision = None

def upgrade():
    schema.upgrade(to=1)

def downgrade():
    schema.downgrade(since=1, to=0)
"""

OWN = """
import sqlalchemy as sa
from alembic import op

revision = "b2"
down_revision = "a1"

def upgrade():
    op.create_table("customer", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text))
    op.execute("create schema billing")
    op.create_table("invoice", sa.Column("id", sa.Integer, primary_key=True), schema="billing")

def downgrade():
    op.drop_table("invoice", schema="billing")
    op.execute("drop schema billing")
    op.drop_table("customer")
"""


class Host:
    """The project; every method is an Alembic command."""

    def __init__(
        self,
        folder: Path,
        dsn: str,
        *,
        include_schemas: bool = False,
        search_path: str = '"$user",public',
        include_name: bool = True,
        locations: Sequence[str] = (),
    ) -> None:
        self.attributes: dict[str, Any] = {
            "url": _url(dsn),
            "include_schemas": include_schemas,
            "search_path": search_path,
            "include_name": include_name,
        }
        self.folder = folder
        self.versions = folder / "alembic" / "versions"
        self.versions.mkdir(parents=True)
        (folder / "alembic.ini").write_text(
            INI.format(locations="".join(f"\n    {each}" for each in locations))
        )
        (folder / "alembic" / "env.py").write_text(ENV)
        (folder / "alembic" / "script.py.mako").write_text(TEMPLATE)
        self.add("a1", PGONCE)
        self.add("b2", OWN)

    def add(self, name: str, text: str) -> None:
        (self.versions / f"{name}.py").write_text(textwrap.dedent(text))

    def upgrade(self, to: str = "head") -> None:
        command.upgrade(self._config(), to)

    def downgrade(self, to: str = "base") -> None:
        command.downgrade(self._config(), to)

    def offline(self, span: str = "head") -> str:
        """What ``alembic upgrade … --sql`` prints."""
        output = io.StringIO()
        command.upgrade(self._config(output), span, sql=True)
        return output.getvalue()

    def check(self) -> None:
        """Raises CommandError when autogenerate would write something."""
        command.check(self._config())

    def autogenerate(self, head: str = "head") -> str:
        """The text of the revision that ``alembic revision --autogenerate`` writes."""
        command.revision(
            self._config(), autogenerate=True, rev_id="auto", head=head, version_path=str(self.versions)
        )
        (path,) = self.versions.glob("auto*.py")
        text = path.read_text()
        path.unlink()
        return text

    def _config(self, output: io.StringIO | None = None) -> Config:
        return Config(
            self.folder / "alembic.ini",
            stdout=io.StringIO(),
            output_buffer=output,
            attributes=self.attributes,
        )


def _url(dsn: str) -> str:
    from psycopg.conninfo import conninfo_to_dict
    from sqlalchemy import URL

    at = conninfo_to_dict(dsn)
    return URL.create(
        "postgresql+psycopg",
        username=str(at["user"]),
        password=str(at["password"]),
        host=str(at["host"]),
        port=int(at["port"] or 0),
        database=str(at["dbname"]),
    ).render_as_string(hide_password=False)
