"""leases: who works now."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.functions.holding import NOON, after, granted
from tests.helpers import Clock, Conn, Row, call

Connect = Callable[..., Conn]


def leases(conn: Conn) -> list[Row]:
    return conn.execute("select * from pgonce.leases order by name, slot").fetchall()


def test_a_lease(conn: Conn, connect: Connect, clock: Clock) -> None:
    claim = granted(connect("worker"), "lease", owner="host-a")
    for instant, expired in ((after(minutes=9, seconds=59.999999), False), (after(minutes=10), True)):
        clock.set(instant)
        (row,) = leases(connect("reader"))
        assert list(row.items()) == [
            ("name", "thing"),
            ("slot", 1),
            ("owner", "host-a"),
            ("role", "worker"),
            ("token", claim["token"]),
            ("acquired_at", NOON),
            ("expires_at", after(minutes=10)),
            ("expired", expired),
        ]


def test_only_what_is_held(conn: Conn, clock: Clock) -> None:
    tokens = [call(conn, "acquire_lease", name="thing", ttl="1 minute", slots=5)["token"] for _ in range(3)]
    call(conn, "release_lease", token=tokens[1])
    assert [(row["slot"], row["token"]) for row in leases(conn)] == [(1, tokens[0]), (3, tokens[2])]


def test_what_min_hold_keeps(conn: Conn, clock: Clock) -> None:
    """Released, but not free: it is seen, so that a denial can be understood."""
    token = call(conn, "acquire_lease", name="thing", ttl="1 minute", min_hold="5 minutes")["token"]
    call(conn, "release_lease", token=token)
    (row,) = leases(conn)
    assert (row["expires_at"], row["expired"]) == (after(minutes=5), False)
    clock.set(after(minutes=5))
    assert leases(conn) == []


def test_slots_out_of_use_are_not_seen(conn: Conn, clock: Clock) -> None:
    for _ in range(3):
        call(conn, "acquire_lease", name="thing", ttl="1 minute", slots=3)
    clock.advance(minutes=1)
    token = call(conn, "acquire_lease", name="thing", ttl="1 minute", slots=1)["token"]
    assert [(row["slot"], row["token"]) for row in leases(conn)] == [(1, token)]


@pytest.mark.parametrize("role", ["worker", "stranger"])
def test_who_may_not_look(connect: Connect, role: str) -> None:
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        leases(connect(role))


@pytest.mark.parametrize("role", ["reader", "worker"])
def test_nobody_writes_through_it(conn: Conn, connect: Connect, clock: Clock, role: str) -> None:
    granted(conn, "lease")
    before = leases(conn)
    for statement in (
        "update pgonce.leases set expires_at = 'infinity'",
        "delete from pgonce.leases",
        "insert into pgonce.leases (name) values ('x')",
    ):
        with pytest.raises(psycopg.Error):
            connect(role).execute(statement)
    assert leases(conn) == before
