"""The files of the revisions: frozen, in one line, and cut into statements where PostgreSQL cuts them."""

from __future__ import annotations

import hashlib
import runpy
from collections.abc import Callable
from importlib.resources import files
from pathlib import Path

import pglast
import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from pgonce import schema
from tests.helpers import ROOT, SQL

MIGRATIONS = ROOT / "migrations"
SCRIPTS = sorted(path.name for path in (MIGRATIONS / "versions").glob("*.sql"))


def test_released_files_never_change() -> None:
    """One differs? Put the file back and write a new revision (before the first release: run freeze.py)."""
    lines = (MIGRATIONS / "frozen.sha256").read_text().splitlines()
    listed = {name: digest for digest, name in (line.split("  ") for line in lines)}
    there = {
        str(path.relative_to(MIGRATIONS)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (MIGRATIONS / "versions").iterdir()
        if path.name[:4].isdecimal()
    }
    assert there == listed


def test_each_revision_has_its_three_files() -> None:
    names = {path.name for path in (MIGRATIONS / "versions").iterdir() if path.name[:4].isdecimal()}
    numbers = range(1, schema.newest() + 1)
    assert names == {f"{n:04}{suffix}" for n in numbers for suffix in (".py", ".up.sql", ".down.sql")}


def test_history_is_one_line() -> None:
    config = Config()
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(MIGRATIONS))
    script = ScriptDirectory.from_config(config)
    revisions = list(script.walk_revisions())[::-1]
    assert script.get_heads() == [f"pgonce_{schema.newest():04}"]
    assert [r.revision for r in revisions] == [f"pgonce_{n:04}" for n in range(1, schema.newest() + 1)]
    assert [r.down_revision for r in revisions] == [None, *(r.revision for r in revisions[:-1])]
    assert revisions[0].branch_labels == {"pgonce"}
    assert all(len(r.revision) < 32 for r in revisions)


@pytest.mark.parametrize("name", SCRIPTS)
def test_statements_are_cut_where_postgresql_cuts_them(name: str) -> None:
    text = (MIGRATIONS / "versions" / name).read_text()
    cut = list(schema._statements(text))
    assert [pglast.fingerprint(statement) for statement in cut] == [
        pglast.fingerprint(statement) for statement in pglast.split(text)
    ]


def test_cutting() -> None:
    script = (
        "-- a comment; not a statement;\n"
        "create function f() returns text language sql as $$\n    select ';';\n$$;\n\n"
        "select 1;\n-- the end;\n"
    )
    function, select = schema._statements(script)
    assert function.endswith("select ';';\n$$")
    assert select == "select 1"


def test_frozen_copy_is_of_sql_as_it_is() -> None:
    """Until the first release; then 0001 stays and sql/ goes on: test_equality goes on with them."""
    freeze = runpy.run_path(str(MIGRATIONS / "freeze.py"))
    script = freeze["up"](SQL / "install.sql")
    assert (MIGRATIONS / "versions" / "0001.up.sql").read_text() == script, "run migrations/freeze.py"
    assert (MIGRATIONS / "versions" / "0001.down.sql").read_text() == freeze["down"](script)


def test_freeze_refuses_what_alembic_could_not_run(tmp_path: Path) -> None:
    freeze = runpy.run_path(str(MIGRATIONS / "freeze.py"))
    install = tmp_path / "install.sql"
    install.write_text("-- prose\n\n\\ir a.sql\nselect 1;\n")
    (tmp_path / "a.sql").write_text("create table pgonce.a ();\n")
    with pytest.raises(SystemExit, match=r"install.sql:4: .*select 1;"):
        freeze["up"](install)


def test_the_package_has_the_files() -> None:
    """In a wheel, an sdist and an editable installation alike."""
    for name in [*SCRIPTS, *(name.replace(".up.sql", ".py") for name in SCRIPTS if name.endswith(".up.sql"))]:
        assert (files("pgonce.migrations.versions") / name).is_file()
    assert (files("pgonce.migrations") / "env.py").is_file()


@pytest.mark.parametrize(
    ("function", "arguments"),
    [
        (schema.upgrade, {"to": 0}),
        (schema.upgrade, {"to": schema.newest() + 1}),
        (schema.upgrade, {"since": 1, "to": 1}),
        (schema.upgrade, {"since": -1, "to": 1}),
        (schema.downgrade, {"since": 0, "to": 0}),
        (schema.downgrade, {"since": 1, "to": 1}),
        (schema.downgrade, {"since": schema.newest() + 1, "to": 0}),
        (schema.downgrade, {"since": 1, "to": -1}),
    ],
)
def test_revisions_that_do_not_exist(function: Callable[..., None], arguments: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=f"<= {schema.newest()} is needed"):
        function(**arguments)
