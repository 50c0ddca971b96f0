"""What the tests of the rules share: asking, sessions that ask at once, and a clock that stops one of them.

The tests write their interleavings out, one step after the other; ``a``, ``b`` and ``c`` are sessions of
their own. A call that waits runs in a thread (fixture ``background``), and the test goes on when it has seen
it wait.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from typing import Any
from uuid import uuid4

import psycopg
from psycopg import sql

from tests.helpers import Conn, Row, call, psql, value, wait_until

KINDS = ("window", "key", "lease", "slots")  # what can be claimed; "slots" is a lease with three of them
RUNS = ("window", "key")
STRICT = ("repeatable read", "serializable")

# Windows of @yearly, asked for by their start: no test depends on the day it runs on.
W1, W2, W3 = (f"{year}-01-01T00:00:00Z" for year in (2020, 2021, 2022))

SHORT = "100 milliseconds"  # the shortest ttl there is

# The calls that take a token, and how each says no.
NOTHING_HELD = {
    "renew_lease": "ON001",
    "mark_done": "ON001",
    "mark_failed": "ON001",
    "assert_held": "ON001",
    "release_lease": "False",
}


def question(kind: str, name: str | None = None, **more: Any) -> tuple[str, Row]:
    """The function that claims this kind of record, and its arguments; the name is the kind's own unless
    given.
    """
    name = name or kind
    if kind == "window":
        return "claim_window", {
            "job": name,
            "schedule": "@yearly",
            "window_start": W1,
            "ttl": "1 hour",
            **more,
        }
    if kind == "key":
        return "claim_key", {"scope": name, "key": "k", "ttl": "1 hour", **more}
    return "acquire_lease", {"name": name, "slots": 3 if kind == "slots" else 1, "ttl": "1 hour", **more}


def answer(conn: Conn, function: str, /, **arguments: Any) -> Row:
    """The claim; for other functions and for errors only ``reason``: the value as text, or the SQLSTATE."""
    try:
        result = call(conn, function, **arguments)
    except psycopg.Error as error:
        return {"reason": error.sqlstate}
    return result if isinstance(result, dict) else {"reason": str(result)}


def outcome(conn: Conn, function: str, /, **arguments: Any) -> str:
    """The reason of a claim, the value of another function as text, or the SQLSTATE of an error."""
    return str(answer(conn, function, **arguments)["reason"])


def define(owner: Conn, kind: str, name: str | None = None, **settings: Any) -> None:
    """Define the job or scope; W1 and later windows are not before the job's beginning."""
    schedule = "@yearly" if kind == "window" else None
    call(owner, "define_job", job=name or kind, schedule=schedule, **settings)
    owner.execute("update pgonce.job set beginning = '2019-01-01Z' where schedule is not null")


def ask(conn: Conn, kind: str, name: str | None = None, **more: Any) -> Row:
    function, arguments = question(kind, name, **more)
    return answer(conn, function, **arguments)


def reason(conn: Conn, kind: str, name: str | None = None, **more: Any) -> str:
    return str(ask(conn, kind, name, **more)["reason"])


def grant(conn: Conn, kind: str, name: str | None = None, **more: Any) -> Row:
    """Ask where a grant is expected."""
    claim = ask(conn, kind, name, **more)
    assert claim["reason"] == "granted", claim
    return claim


def grant_all(conn: Conn, kind: str, name: str | None = None, **more: Any) -> Row:
    """Take all there is under this name, each slot if it has several; the last grant."""
    for _ in range(3 if kind == "slots" else 1):
        claim = grant(conn, kind, name, **more)
    return claim


def yes_calls(a: Conn, ttl: str = "1 hour") -> dict[str, Callable[[Conn], Any]]:
    """Every call that says yes, each prepared so that it can be made once by any session of that role."""

    def holds(conn: Conn, function: str, token: int) -> None:
        assert outcome(conn, function, token=token) not in ("ON001", "False", "55P03")

    calls: dict[str, Callable[[Conn], Any]] = {}
    for kind in KINDS:
        calls[f"claim {kind}"] = partial(grant, kind=kind, name=f"{kind} claimed", ttl=ttl)
        replay: dict[str, Any] = {"kind": kind, "name": f"{kind} asked", "ttl": ttl, "nonce": uuid4()}
        grant(a, **replay)
        calls[f"replay {kind}"] = partial(grant, **replay)
        for function in holding_calls(kind):
            token = grant(a, kind, f"{kind} {function}", ttl=ttl)["token"]
            calls[f"{function} {kind}"] = partial(holds, function=function, token=token)
        for function in ("mark_done", "mark_failed") if kind in RUNS else ():
            token = grant(a, kind, f"{kind} {function} again", ttl=ttl)["token"]
            holds(a, function, token)
            calls[f"{function} {kind} again"] = partial(holds, function=function, token=token)
    return calls


def holding_calls(kind: str) -> tuple[str, ...]:
    """The calls that somebody who holds this kind of record makes."""
    return (
        "renew_lease",
        "assert_held",
        *(("mark_done", "mark_failed") if kind in RUNS else ("release_lease",)),
    )


def told(conn: Conn, token: int | None) -> dict[str, str]:
    """What each call with this token says; of one that holds nothing: NOTHING_HELD."""
    return {function: outcome(conn, function, token=token) for function in NOTHING_HELD}


def finish(conn: Conn, kind: str, token: int) -> str:
    """End well."""
    return outcome(conn, "mark_done" if kind in RUNS else "release_lease", token=token)


def give_up(conn: Conn, kind: str, token: int) -> str:
    """End so that somebody else may start at once."""
    if kind in RUNS:
        return outcome(conn, "mark_failed", token=token, retry_in="0")
    return outcome(conn, "release_lease", token=token)


def table(kind: str) -> str:
    return "pgonce.run" if kind in RUNS else "pgonce.lease"


def expire(owner: Conn, kind: str, name: str | None = None) -> None:
    """Let the time of all that is held under this name be over (without waiting for it)."""
    held = "t.name = %s and t.expires_at > pgonce.clock()"
    owner.execute(f"update {table(kind)} t set expires_at = pgonce.clock() where {held}", (name or kind,))


def prepare(a: Conn, owner: Conn, kind: str, before: str) -> None:
    """Bring the record into a state in which it can be claimed."""
    match before:
        case "expired":
            grant_all(a, kind)
            expire(owner, kind)
        case "given up":
            for claim in [grant(a, kind) for _ in range(3 if kind == "slots" else 1)]:
                assert give_up(a, kind, claim["token"]) == "True"


def clock_time(conn: Conn) -> datetime:
    instant: datetime = value(conn, "select clock_timestamp()")
    return instant


def wait_past(conn: Conn, instant: datetime | str, after: str = "0") -> None:
    """Wait until the server's clock is past an instant."""
    wait_until(
        lambda: value(conn, "select clock_timestamp() > %s::timestamptz + %s::interval", instant, after)
    )


def stored(owner: Conn) -> dict[str, list[Row]]:
    """All that pgonce has stored, to be compared before and after."""
    return {
        name: owner.execute(f"select t::text as row from pgonce.{name} t order by 1").fetchall()
        for name in ("job", "run", "lease", "denial")
    }


def errors_logged(log: str, dbname: str) -> list[str]:
    """The lines of the server's log that tell of an error or a deadlock in this database."""
    bad = ("ERROR:", "FATAL:", "PANIC:", "deadlock")
    return [line for line in log.splitlines() if f"@{dbname} " in line and any(word in line for word in bad)]


def waits_for(observer: Conn, conn: Conn) -> str | None:
    """What the session waits for now, as the server calls it."""
    event: str | None = value(
        observer, "select wait_event from pg_stat_activity where pid = %s", conn.info.backend_pid
    )
    return event


def log_waits(superuser: Conn) -> None:
    """Let the server log each lock that this (superuser's) session waits for longer than a millisecond."""
    superuser.execute("set deadlock_timeout = '1ms'")
    superuser.execute("set log_lock_waits = on")


def waits_logged(log: str, dbname: str) -> list[str]:
    return [line for line in log.splitlines() if f"@{dbname} " in line and "still waiting for" in line]


# Sessions that start at once: each waits for an advisory lock, which the test lets go when all of them do.

_GUN = 4711


def by_conn(conn: Conn, function: str, /, **arguments: Any) -> Callable[[], Row]:
    """A question for at_once, asked through a connection."""

    def run() -> Row:
        conn.execute("select pg_advisory_xact_lock_shared(%s)", (_GUN,))
        return answer(conn, function, **arguments)

    return run


def in_transaction(conn: Conn, isolation: str, function: str, /, **arguments: Any) -> Callable[[], Row]:
    """The same in a transaction whose snapshot is older than all the answers."""

    def run() -> Row:
        snapshot(conn, isolation)
        claim = by_conn(conn, function, **arguments)()
        try:
            conn.execute("commit")
        except psycopg.errors.SerializationFailure as error:
            return {"reason": error.sqlstate}
        return claim

    return run


def by_psql(dsn: str, function: str, /, **arguments: Any) -> Callable[[], Row]:
    """A question for at_once, asked by a psql process."""
    named = sql.SQL(", ").join(
        sql.SQL("{} => {}").format(sql.Identifier(name), sql.Literal(argument))
        for name, argument in arguments.items()
    )
    claim = (
        sql.SQL("select to_json(c) from pgonce.{}({}) c;").format(sql.Identifier(function), named).as_string()
    )

    def run() -> Row:
        script = f"select pg_advisory_xact_lock_shared({_GUN});\n{claim}"
        row: Row = json.loads(psql(dsn, "-At", script=script).stdout)
        return row

    return run


def at_once(owner: Conn, questions: Sequence[Callable[[], Row]]) -> list[Row]:
    """Ask all questions in the same instant; the answers in the same order."""
    waiting = """
        select count(*) from pg_locks l join pg_database d on d.oid = l.database
        where d.datname = current_database() and l.locktype = 'advisory' and l.objid = %s and not l.granted
    """
    with ThreadPoolExecutor(len(questions)) as pool:
        owner.execute("select pg_advisory_lock(%s)", (_GUN,))
        try:
            answers = [pool.submit(one) for one in questions]
            wait_until(lambda: value(owner, waiting, _GUN) == len(questions))
        finally:
            owner.execute("select pg_advisory_unlock(%s)", (_GUN,))
        return [one.result() for one in answers]


def reasons(answers: Sequence[Row]) -> list[str]:
    return [str(one["reason"]) for one in answers]


# Clocks of the tests, put in place by the schema's owner.


def slow_clock(owner: Conn) -> None:
    """Each reading takes up to 5 ms: races become wide."""
    owner.execute("""
        create or replace function pgonce.clock() returns timestamptz language plpgsql volatile as $$
        begin
            perform pg_catalog.pg_sleep(pg_catalog.random() * 0.005);
            return pg_catalog.clock_timestamp();
        end
        $$
    """)


class Gate:
    """A clock that stops the session with application_name ``gated``: it has read the time, and does not go
    on.

    A claim reads the clock after it has read the record and before it locks anything: that is where it is
    stopped, with what it knows growing old. (A window's claim reads it once more before, to know the window:
    ``reading`` 1.)
    """

    _KEY = 4712

    def __init__(self, owner: Conn, kind: str, reading: int | None = None) -> None:
        self._owner = owner
        if reading is None:
            reading = 2 if kind == "window" else 1
        owner.execute(f"""
            create schema gate;
            create sequence gate.readings;
            create or replace function pgonce.clock() returns timestamptz language plpgsql volatile as $$
            declare
                v_now timestamptz := pg_catalog.clock_timestamp();
            begin
                if pg_catalog.current_setting('application_name') = 'gated'
                   and pg_catalog.nextval('gate.readings') = {reading} then
                    perform pg_catalog.pg_advisory_lock({self._KEY});
                    perform pg_catalog.pg_advisory_unlock({self._KEY});
                end if;
                return v_now;
            end
            $$
        """)

    @contextmanager
    def closed(self) -> Iterator[None]:
        """Within the block the gated session cannot pass."""
        self._owner.execute("select pg_advisory_lock(%s)", (self._KEY,))
        try:
            yield
        finally:
            self._owner.execute("select pg_advisory_unlock(%s)", (self._KEY,))


def patient(owner: Conn, *functions: str) -> None:
    """Let these functions wait for locks up to 20 s (instead of 100 ms), so that a test can see them wait."""
    for function in functions:
        (row,) = owner.execute(
            "select oid::regprocedure::text as name from pg_proc where oid = ('pgonce.' || %s)::regproc",
            (function,),
        ).fetchall()
        owner.execute(f"alter function {row['name']} set lock_timeout = '20s'")


def snapshot(conn: Conn, isolation: str) -> None:
    """Begin a transaction and take its snapshot."""
    conn.execute(f"begin isolation level {isolation}")
    conn.execute("select 1")
