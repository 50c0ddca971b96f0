"""What the tests share. Nothing here knows a rule of pgonce."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from pgonce._embedded import find_bindir

ROOT = Path(__file__).resolve().parent.parent
SQL = ROOT / "sql"
OWNER = "pgonce_owner"

Row = dict[str, Any]
Conn = psycopg.Connection[Row]


def call(conn: Conn, function: str, /, **arguments: Any) -> Any:
    """Call ``pgonce.function(name => value, …)``: the row as a dict, or the value of its only column."""
    (row,) = call_all(conn, function, **arguments)
    return row if len(row) > 1 else next(iter(row.values()))


def call_all(conn: Conn, function: str, /, **arguments: Any) -> list[Row]:
    """The same for a function that returns a set."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Placeholder(name)) for name in arguments
    )
    query = sql.SQL("select * from pgonce.{}({})").format(sql.Identifier(function), named)
    return conn.execute(query, arguments).fetchall()


def value(conn: Conn, query: str, *parameters: Any) -> Any:
    """The only column of the only row."""
    (row,) = conn.execute(query, parameters or None).fetchall()
    (result,) = row.values()
    return result


def wait_until(predicate: Callable[[], Any], timeout: float = 20.0) -> Any:
    """Ask until the answer is true, and return it; the one place of the tests that sleeps."""
    deadline = time.monotonic() + timeout
    while not (answer := predicate()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout} s: {predicate}")
        time.sleep(0.005)
    return answer


def wait_for_lock(conn: Conn, pid: int, timeout: float = 20.0) -> None:
    """Wait until the backend ``pid`` waits for a lock, as seen from a session ``conn`` of the owner's."""
    query = "select wait_event_type = 'Lock' from pg_stat_activity where pid = %s"
    wait_until(lambda: value(conn, query, pid), timeout)


def psql(
    dsn: str, *arguments: str | Path, script: str | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run psql without anybody's psqlrc; it stops at the first error. ``script`` is its standard input."""
    program = str(find_bindir() / "psql")
    command = [program, "-Xq", "-v", "ON_ERROR_STOP=1", "-d", dsn, *map(str, arguments)]
    env = {name: text for name, text in os.environ.items() if not name.startswith("PG")}
    done = subprocess.run(command, input=script, capture_output=True, text=True, check=False, env=env)
    if check and done.returncode != 0:
        raise AssertionError(f"psql: {done.stderr}")
    return done


def pgbouncer_program() -> str | None:
    """PgBouncer does not come with pip; Debian keeps it where only root looks."""
    return shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")


class Clock:
    """The database's clock, held still: ``pgonce.clock()``, replaced by the owner, reads a table."""

    def __init__(self, conn: Conn) -> None:
        self._conn = conn
        conn.execute("""
            create schema test;
            create table test.clock as select pg_catalog.clock_timestamp() as instant;
            create or replace function pgonce.clock() returns timestamptz language sql volatile
            as $$ select c.instant from test.clock as c $$;
            grant usage on schema test to public;
            grant select on test.clock to public;
        """)

    @property
    def now(self) -> datetime:
        instant: datetime = value(self._conn, "select instant from test.clock")
        return instant

    def set(self, instant: datetime | str) -> None:
        self._conn.execute("update test.clock set instant = %s", (instant,))

    def advance(self, **duration: float) -> None:
        """``advance(seconds=…)``, and whatever else ``timedelta`` takes."""
        self._conn.execute("update test.clock set instant = instant + %s", (timedelta(**duration),))
