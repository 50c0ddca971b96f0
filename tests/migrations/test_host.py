"""A host application's own history: install, autogenerate in four set-ups, the next revision, downgrade."""

from __future__ import annotations

from pathlib import Path

import pytest
from alembic.util import CommandError

from tests.helpers import psql
from tests.migrations.catalog import OBJECTS, read
from tests.migrations.conftest import NextRelease
from tests.migrations.host import OWN, Host


def tables(dsn: str) -> set[str]:
    return {identity for kind, identity, _ in read(dsn, OBJECTS) if kind == "table"}


DEFAULT = '"$user",public'


@pytest.mark.parametrize("search_path", [DEFAULT, "pgonce,public", "public,pgonce"])
@pytest.mark.parametrize("include_schemas", [False, True])
def test_autogenerate_leaves_us_alone(
    empty_dsn: str, tmp_path: Path, include_schemas: bool, search_path: str
) -> None:
    """Case 42. What would happen without include_name is the next test."""
    host = Host(tmp_path, empty_dsn, include_schemas=include_schemas, search_path=search_path)
    host.upgrade()
    host.check()
    assert host.autogenerate().count("pass\n") == 2
    host.attributes["table"] = "wanted"
    with pytest.raises(CommandError, match=r"detected: \[\('add_table', Table\('wanted'[^\[\]]*\]$"):
        host.check()
    host.downgrade()
    assert tables(empty_dsn) == {"public.alembic_version"}


@pytest.mark.parametrize(
    ("include_schemas", "search_path"),
    [(True, DEFAULT), (False, "pgonce,public"), (True, "pgonce,public"), (False, "public,pgonce")],
)
def test_autogenerate_would_drop_us_without_include_name(
    empty_dsn: str, tmp_path: Path, include_schemas: bool, search_path: str
) -> None:
    host = Host(
        tmp_path, empty_dsn, include_schemas=include_schemas, search_path=search_path, include_name=False
    )
    host.upgrade()
    with pytest.raises(CommandError, match=r"remove_table.*lease"):
        host.check()


def test_a_table_of_the_hosts_that_is_named_like_ours_is_seen(empty_dsn: str, tmp_path: Path) -> None:
    host = Host(tmp_path, empty_dsn, search_path="public,pgonce")
    host.upgrade()
    psql(empty_dsn, "-c", "create table public.job (id integer)")
    with pytest.raises(CommandError, match=r"remove_table.*'job'"):
        host.check()


def test_our_next_revision(empty_dsn: str, tmp_path: Path, next_release: NextRelease) -> None:
    """Case 43: the host pastes what check says into its history, and goes on and back."""
    host = Host(tmp_path / "host", empty_dsn)
    host.upgrade("a1")
    first = read(empty_dsn)
    next_release()
    host.upgrade()
    host.add(
        "c3",
        """
        from pgonce import schema

        revision = "c3"
        down_revision = "b2"

        def upgrade():
            schema.upgrade(since=1, to=2)

        def downgrade():
            schema.downgrade(since=2, to=1)
        """,
    )
    host.upgrade()
    assert "pgonce.job.added" in {identity for _, identity, _ in read(empty_dsn) - first}
    host.check()
    host.downgrade("a1")
    assert read(empty_dsn) == first
    host.downgrade()


def test_our_history_beside_the_hosts(empty_dsn: str, tmp_path: Path) -> None:
    """The third door, as migrations/README.md tells it: our revisions as a branch of the host's history."""
    host = Host(tmp_path, empty_dsn, locations=["pgonce.migrations:versions"])
    (host.versions / "a1.py").unlink()
    host.add("b2", OWN.replace('"a1"', "None"))
    host.upgrade("heads")
    assert {"pgonce.job", "public.customer"} <= tables(empty_dsn)
    host.check()
    assert "down_revision = 'b2'" in host.autogenerate(head="b2")
    host.downgrade("pgonce@base")
    assert tables(empty_dsn) == {"public.customer", "billing.invoice", "public.alembic_version"}
