"""The next release of pgonce, made up: revision 2 beside the real ones."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pgonce import schema
from tests.helpers import ROOT

NextRelease = Callable[[], None]

REVISION = """
from pgonce import schema

revision, down_revision, branch_labels, depends_on = "pgonce_{n:04}", "pgonce_{before:04}", None, None


def upgrade() -> None:
    schema.upgrade(since={before}, to={n})


def downgrade() -> None:
    schema.downgrade(since={n}, to={before})
"""

VERSION = """
create or replace function pgonce.schema_version()
returns integer
language plpgsql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return {n};
end
$$;
"""


@pytest.fixture
def next_release(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> NextRelease:
    """A function: from its call on, the package brings one revision more."""

    def release() -> None:
        folder = tmp_path / "next"
        shutil.copytree(ROOT / "migrations", folder / "migrations")
        before = schema.newest()
        n = before + 1
        versions = folder / "migrations" / "versions"
        (versions / f"{n:04}.py").write_text(REVISION.format(n=n, before=before))
        (versions / f"{n:04}.up.sql").write_text(
            VERSION.format(n=n) + "alter table pgonce.job add column added integer;\n"
        )
        (versions / f"{n:04}.down.sql").write_text(
            "alter table pgonce.job drop column added;\n" + VERSION.format(n=before)
        )
        monkeypatch.setattr(schema, "files", lambda package: folder.joinpath(*package.split(".")[1:]))

    return release
