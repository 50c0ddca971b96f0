"""Help, migrate, sql, the private server, and what is not loaded."""

from __future__ import annotations

import subprocess
import sys

import psycopg
import pytest

import pgonce
from pgonce import schema
from pgonce.cli import main
from tests.cli.conftest import Run, environment
from tests.helpers import Conn, psql, value


def help_of(capsys: pytest.CaptureFixture[str], *command: str) -> str:
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    text, errors = capsys.readouterr()
    assert errors == ""
    return text


@pytest.mark.parametrize("command", ["window", "lease", "key", "migrate", "sql", "demo"])
def test_help_has_an_example(capsys: pytest.CaptureFixture[str], command: str) -> None:
    assert command in help_of(capsys)
    text = help_of(capsys, command)
    assert f"usage: pgonce {command}" in text
    assert f"pgonce {command}" in text.partition("example")[2]


@pytest.mark.parametrize("command", ["window", "lease", "key"])
def test_help_names_every_exit_status(capsys: pytest.CaptureFixture[str], command: str) -> None:
    table = help_of(capsys, command).partition("exit status")[2]
    assert [
        status for status in ("0", "64", "69", "75", "76", "126", "127", "128+n") if status not in table
    ] == []


def test_migrate(run: Run, empty_dsn: str) -> None:
    first = run("migrate", dsn=empty_dsn)
    assert (first.returncode, first.stderr) == (0, "")
    assert first.stdout == f"schema pgonce: revision {schema.newest()}\n"
    again = run("migrate", "--dsn", empty_dsn, dsn=None)
    assert again.stdout == f"schema pgonce: revision {schema.newest()}, as it was\n"
    assert run("window", "job", "@daily", "--", "true", dsn=empty_dsn).returncode == 0


def test_sql(run: Run, empty_dsn: str) -> None:
    script = run("sql")
    assert script.returncode == 0
    psql(empty_dsn, script=script.stdout)
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        assert pgonce.schema_version(conn) == schema.newest()


@pytest.mark.parametrize("how", [{"dsn": "embedded"}, {"dsn": None, "option": "--embedded"}])
def test_embedded(run: Run, how: dict[str, str | None]) -> None:
    """With the schema in it; and what the command asks is the same server."""
    nested = ("sh", "-c", 'echo "$PGONCE_DSN"; pgonce window job @daily --denied-exit 5 -- true; echo $?')
    options = [option] if (option := how.get("option")) else []
    path = str(sys.executable).rpartition("/")[0]
    ended = run(
        "window", "job", "@daily", *options, "--", *nested,
        dsn=how["dsn"], env={"PATH": f"{path}:/usr/bin:/bin"},
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
    dsn, status = ended.stdout.splitlines()
    assert "host=127.0.0.1" in dsn
    assert status == "5"
    with pytest.raises(psycopg.OperationalError):  # gone with the command
        psycopg.connect(dsn).close()


def test_running_a_command_loads_nothing_that_it_does_not_need(dsn: str, conn: Conn) -> None:
    """Also `import pgonce`, whose modules are a part of this."""
    script = """if True:
        import sys
        from pgonce.cli import main
        status = main(["window", "job", "@daily", "--", "true"])
        loaded = sorted({"alembic", "sqlalchemy", "rich", "mako", "psycopg_pool"} & set(sys.modules))
        sys.exit(str(loaded) if loaded else status)
    """
    ended = subprocess.run(
        [sys.executable, "-c", script], env=environment(dsn), capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert value(conn, "select state from pgonce.runs") == "done"
