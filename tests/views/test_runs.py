"""runs: every window and operation on record."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest

from tests.functions.holding import NOON, after, granted
from tests.helpers import Clock, Conn, Row, call

Connect = Callable[..., Conn]


def runs(conn: Conn) -> list[Row]:
    return conn.execute("select * from pgonce.runs order by name, key").fetchall()


def field(conn: Conn, name: str) -> Any:
    (row,) = runs(conn)
    return row[name]


def test_a_window(conn: Conn, connect: Connect, clock: Clock) -> None:
    claim = granted(connect("worker"), "window", owner="host-a")
    (row,) = runs(conn)
    assert list(row.items()) == [
        ("name", "thing"),
        ("key", "2026-06-01T00:00:00Z"),
        ("state", "running"),
        ("attempt", 1),
        ("owner", "host-a"),
        ("role", "worker"),
        ("token", claim["token"]),
        ("claimed_at", NOON),
        ("expires_at", after(minutes=10)),
        ("expired", False),
        ("finished_at", None),
        ("window_start", after(hours=-12)),
        ("window_end", after(hours=12)),
        ("result", None),
        ("error", None),
    ]


def test_an_operation(conn: Conn, clock: Clock) -> None:
    granted(conn, "operation")
    (row,) = runs(conn)
    assert (row["name"], row["key"], row["role"]) == ("thing", "key", "pgonce_owner")
    assert (row["window_start"], row["window_end"]) == (None, None)


def test_expired(conn: Conn, clock: Clock) -> None:
    """Running, and anybody may take over; not once it is finished."""
    token = granted(conn, "operation")["token"]
    clock.set(after(minutes=9, seconds=59.999999))
    assert field(conn, "expired") is False
    clock.set(after(minutes=10))
    assert (field(conn, "expired"), field(conn, "state")) == (True, "running")
    call(conn, "mark_failed", token=token, error="boom", retry_in="0")
    assert (field(conn, "expired"), field(conn, "state"), field(conn, "error")) == (False, "failed", "boom")
    clock.advance(minutes=1)
    call(conn, "mark_done", token=granted(conn, "operation")["token"], result="1")
    (row,) = runs(conn)
    assert (row["expired"], row["state"], row["error"], row["result"]) == (False, "done", None, 1)
    assert (row["claimed_at"], row["finished_at"], row["attempt"]) == (
        after(minutes=11),
        after(minutes=11),
        2,
    )


def test_a_burnt_token_is_not_the_holders(conn: Conn, connect: Connect, clock: Clock) -> None:
    token = granted(conn, "window", ttl="1 minute")["token"]
    clock.advance(days=1)
    granted(connect(), "window")
    older, newer = runs(conn)
    assert older["token"] != token
    assert (older["state"], older["expired"], newer["state"], newer["expired"]) == (
        "running",
        True,
        "running",
        False,
    )


@pytest.mark.parametrize("kind", ["operation", "window"])
def test_a_result_is_shown_to_those_for_whom_the_token_would_work(
    conn: Conn, connect: Connect, clock: Clock, kind: str
) -> None:
    for role in ("worker", "worker2"):
        call(conn, "grant_reader", role=role)
    call(conn, "mark_done", token=granted(connect("worker"), kind)["token"], result='{"secret": 1}')
    shown = {role: field(connect(role), "result") for role in ("worker", "worker2", "reader", "pgonce_owner")}
    assert shown == {"worker": {"secret": 1}, "worker2": None, "reader": None, "pgonce_owner": {"secret": 1}}
    assert field(connect("reader"), "state") == "done"


@pytest.mark.parametrize("role", ["worker", "stranger"])
def test_who_may_not_look(connect: Connect, role: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        runs(connect(role))


@pytest.mark.parametrize("role", ["reader", "worker"])
def test_nobody_writes_through_it(conn: Conn, connect: Connect, clock: Clock, role: str) -> None:
    granted(conn, "operation")
    before = runs(conn)
    for statement in (
        "update pgonce.runs set state = 'done'",
        "delete from pgonce.runs",
        "insert into pgonce.runs (name) values ('x')",
    ):
        with pytest.raises(psycopg.Error):
            connect(role).execute(statement)
    assert runs(conn) == before
