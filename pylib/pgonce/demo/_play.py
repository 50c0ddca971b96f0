"""The play: a private server, six hosts, a kill; the same from psql; what the database says afterwards."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, contextmanager
from datetime import datetime, timedelta, timezone
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any, TypeAlias

import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict

import pgonce
from pgonce import schema
from pgonce._embedded import Server

from ._cast import EVERY, HOSTS, JOB, SCHEDULE, Event, Plan
from ._check import TABLE, check, faults
from ._screen import Screen

if TYPE_CHECKING:
    from collections.abc import Iterator

Conn: TypeAlias = "psycopg.Connection[Any]"
Events: TypeAlias = "queue.SimpleQueue[Event | None]"  # None: one of the hosts has ended

_PATIENCE = 60.0  # seconds, for what takes two
_KILL_AFTER = 0.5
_VARIABLES = {
    "host": "PGHOST",
    "port": "PGPORT",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "dbname": "PGDATABASE",
}


class PlayError(Exception):
    """The play could not be played to its end; the text says why."""


def play(seconds: int) -> int:
    """0 if every window was done exactly once, else 1."""
    for name in set(os.environ):
        if name.startswith("PG") and name != "PG_BINDIR":
            del os.environ[name]  # what libpq is told for other servers is not meant for this one
    screen = Screen()
    screen.say("starting a private PostgreSQL and six hosts in two data centres")
    with _terminable(), Server() as server, psycopg.connect(server.dsn(), autocommit=True) as admin:
        admin.execute("create database demo")
        with psycopg.connect(server.dsn("demo"), autocommit=True) as conn:
            dsn = _install(conn, server)
            try:
                wrong = [*_compete(conn, dsn, seconds // EVERY, screen), *_nightly(conn, server, dsn, screen)]
            except PlayError as error:
                wrong = [str(error)]
    for fault in wrong:
        screen.say(f"FAILED: {fault}", "bold red")
    if not wrong:
        screen.say("Every window was done exactly once.", "bold green")
    return 1 if wrong else 0


def _install(conn: Conn, server: Server) -> str:
    """The schema, the table that the work goes to, and the hosts' role; returns the dsn of the hosts."""
    conn.execute(schema.sql().encode())
    conn.execute(TABLE)
    conn.execute(sql.SQL("create role host login password {}").format(sql.Literal(server.password)))
    conn.execute("grant insert on report to host")
    pgonce.grant_worker(conn, "host")
    return server.dsn("demo", user="host")


def _compete(conn: Conn, dsn: str, count: int, screen: Screen) -> list[str]:
    """Six hosts compete for the windows of a schedule; whoever gets the second one is killed at work."""
    events: Events = queue.SimpleQueue()
    with ExitStack() as stack:
        hosts = {name: _start(stack, name, dsn, events) for name in HOSTS}
        for _ in hosts:
            if _next(events, _PATIENCE) is None:
                raise PlayError("a host has ended before it was ready")
        plan = Plan(_first(conn), count)
        screen.say(f'each of them fires "{SCHEDULE}" from {plan.first:%H:%M:%S} UTC on, {count} times\n')
        for host in hosts.values():
            assert host.stdin is not None
            host.stdin.write(plan.to_json() + "\n")
            host.stdin.flush()

        stack.enter_context(screen)
        last = plan.first + (count - 1) * timedelta(seconds=EVERY)
        fatal = min(last, plan.first + timedelta(seconds=EVERY))
        victim: Event | None = None
        running = len(hosts)
        while running:
            event = _next(events, (last - datetime.now(timezone.utc)).total_seconds() + _PATIENCE)
            if event is None:
                running -= 1
                continue
            screen.show(event)
            if victim is None and event.what == "granted" and (event.window_start or 0) >= fatal.timestamp():
                victim = event
                _kill_later(stack, hosts[event.host], event, events)

    verdicts = check(conn, JOB, SCHEDULE, expected=[plan.first, last])
    screen.show_result(verdicts)
    wrong = faults(JOB, verdicts)
    if victim is None:
        return [*wrong, "nobody was granted a window in which to be killed"]
    (verdict,) = (v for v in verdicts if v.window_start.timestamp() == victim.window_start)
    if verdict.attempt is None or verdict.attempt < 2:
        return [*wrong, f"{victim.host} was killed, and nobody took its window over"]
    screen.say(f"{victim.host} was killed (kill -9) at work, and {verdict.owner} took its window over.")
    return wrong


def _nightly(conn: Conn, server: Server, dsn: str, screen: Screen) -> list[str]:
    """The same from a script for psql, started twice."""
    screen.say("\nThe same from psql, with \\gset and \\if, twice:")
    # Not as an argument, which every user of this machine could read.
    settings = {_VARIABLES[name]: str(value) for name, value in conninfo_to_dict(dsn).items()}
    statuses = []
    with as_file(files(__package__) / "nightly.sql") as script:
        for _ in range(2):
            done = subprocess.run(
                [server.bindir / "psql", "-X", "-q", "-f", script],
                env={**os.environ, **settings},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            screen.say(f"\n$ psql -X -q -f nightly.sql\n{done.stdout.strip()}")
            screen.say(f"exit status {done.returncode}", "dim")
            statuses.append(done.returncode)
    screen.say()
    wrong = faults("nightly", check(conn, "nightly", "0 3 * * *", "Europe/Berlin"))
    return wrong if statuses == [0, 0] else [*wrong, f"psql ended with {statuses}"]


def _start(stack: ExitStack, name: str, dsn: str, events: Events) -> subprocess.Popen[str]:
    """A host; killed, if it has not ended by then, when the stack ends."""
    host = stack.enter_context(
        subprocess.Popen(
            [sys.executable, "-m", "pgonce.demo._host", name],
            env={**os.environ, "PGONCE_DSN": dsn},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # Ctrl-C is for the demo alone
        )
    )
    reader = threading.Thread(target=_read, args=(host, events))
    reader.start()
    stack.callback(reader.join)
    stack.callback(host.kill)
    return host


def _read(host: subprocess.Popen[str], events: Events) -> None:
    assert host.stdout is not None
    for line in host.stdout:
        events.put(Event.from_json(line))
    events.put(None)


def _next(events: Events, seconds: float) -> Event | None:
    try:
        return events.get(timeout=max(0.0, seconds))
    except queue.Empty:
        raise PlayError("the hosts did not come to an end in time") from None


def _kill_later(stack: ExitStack, host: subprocess.Popen[str], granted: Event, events: Events) -> None:
    def kill() -> None:
        events.put(Event(granted.host, "killed", time.time(), window_start=granted.window_start))
        host.kill()

    timer = threading.Timer(_KILL_AFTER, kill)
    timer.start()
    stack.callback(timer.cancel)


def _first(conn: Conn) -> datetime:
    """The next fire time that leaves the hosts some time to be told."""
    first = pgonce.window_at(conn, SCHEDULE).window_end
    soon = datetime.now(timezone.utc) + timedelta(seconds=0.5)
    return first if first > soon else first + timedelta(seconds=EVERY)


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does: nothing is left behind."""

    def end(signum: int, frame: object) -> None:
        sys.exit(128 + signum)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
