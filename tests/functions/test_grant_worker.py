"""grant_worker: a role that claims, renews and finishes, and touches no table."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql

from pgonce._embedded import Server
from tests.functions.privileges import may
from tests.functions.refusals import Refusal, assert_refused
from tests.helpers import Conn, call

Connect = Callable[..., Conn]

WORKER = {
    "schema",
    "claim_window",
    "claim_key",
    "acquire_lease",
    "renew_lease",
    "release_lease",
    "mark_done",
    "mark_failed",
    "assert_held",
    "window_at",
    "windows",
    "key_of",
    "schema_version",
}

BAD_ROLES: list[Refusal] = [
    ("role", None, "role must not be null", "pg_roles"),
    ("role", "", 'role does not exist: ""', "pg_roles"),
    ("role", "nobody_of_this_name", 'role does not exist: "nobody_of_this_name"', "pg_roles"),
    ("role", "WORKER", 'role does not exist: "WORKER"', "exactly"),
    ("role", " worker", 'role does not exist: " worker"', "exactly"),
    ("role", "worker, reader", 'role does not exist: "worker, reader"', "exactly"),
    ("role", "public", 'role does not exist: "public"', "PUBLIC"),
    ("role", "PUBLIC", 'role does not exist: "PUBLIC"', "PUBLIC"),
    ("role", "current_user", 'role does not exist: "current_user"', "exactly"),
    ("role", "x" * 300, 'role does not exist: "xxx', "exactly"),
    ("role", "stranger\n", r'role does not exist: "stranger\n"', "exactly"),
]


@pytest.fixture(params=['Odd "name"; drop', "select", "a" * 63])
def odd_role(request: pytest.FixtureRequest, pg_server: Server, dsn: str) -> Iterator[str]:
    """A role whose name needs quotes; gone, with its privileges, before the database is."""
    name: str = request.param
    role = sql.Identifier(name)
    with psycopg.connect(pg_server.dsn(), autocommit=True) as admin:
        admin.execute(sql.SQL("create role {}").format(role))
    yield name
    with psycopg.connect(dsn, user=pg_server.user, autocommit=True) as admin:
        admin.execute(sql.SQL("drop owned by {}").format(role))
        admin.execute(sql.SQL("drop role {}").format(role))


def test_before_it_a_role_may_nothing(conn: Conn) -> None:
    assert may(conn, "stranger") == set()


def test_what_a_worker_may(conn: Conn) -> None:
    call(conn, "grant_worker", role="stranger")
    assert may(conn, "stranger") == WORKER
    call(conn, "grant_worker", role="stranger")
    assert may(conn, "stranger") == WORKER


def test_a_worker_works(conn: Conn, connect: Connect) -> None:
    call(conn, "grant_worker", role="stranger")
    stranger = connect("stranger")
    answer = call(stranger, "claim_window", job="nightly", schedule="@daily")
    assert call(stranger, "mark_done", token=answer["token"]) is True


def test_a_name_that_needs_quotes(conn: Conn, odd_role: str) -> None:
    call(conn, "grant_worker", role=odd_role)
    assert may(conn, odd_role) == WORKER


def test_nothing_for_public(conn: Conn) -> None:
    before = conn.execute("select proname, proacl::text from pg_proc order by oid").fetchall()
    call(conn, "grant_worker", role="worker")
    assert conn.execute("select proname, proacl::text from pg_proc order by oid").fetchall() == before
    assert may(conn, "stranger") == set()


def test_only_the_owner_grants(connect: Connect) -> None:
    for role in ("worker", "reader", "stranger"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            call(connect(role), "grant_worker", role="stranger")


def test_refusals(conn: Conn) -> None:
    assert_refused(conn, "grant_worker", {"role": "worker"}, BAD_ROLES)
    assert may(conn, "stranger") == set()
