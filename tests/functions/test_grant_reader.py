"""grant_reader: a role that may look, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.functions.privileges import may
from tests.functions.refusals import assert_refused
from tests.functions.test_grant_worker import BAD_ROLES, WORKER
from tests.helpers import Conn, call

Connect = Callable[..., Conn]

VIEWS = {"schema", "select runs", "select leases"}


def test_what_a_reader_may(conn: Conn) -> None:
    """Select the views; execute what they call, and nothing that a worker may."""
    for _ in range(2):
        call(conn, "grant_reader", role="stranger")
        rights = may(conn, "stranger")
        assert rights >= VIEWS
        called = rights - VIEWS
        assert not called & (WORKER | {"define_job", "grant_worker", "grant_reader"})
        definitions = conn.execute("select definition from pg_views where schemaname = 'pgonce'").fetchall()
        bodies = conn.execute(
            "select proname, prosrc from pg_proc where proname = any(%s)", [list(called)]
        ).fetchall()
        texts = " ".join([*(row["definition"] for row in definitions), *(row["prosrc"] for row in bodies)])
        assert [name for name in called if f"pgonce.{name}(" not in texts] == []


def test_a_reader_reads(conn: Conn, connect: Connect) -> None:
    call(conn, "grant_reader", role="stranger")
    call(conn, "acquire_lease", name="deploy", ttl="1 minute")
    call(conn, "claim_key", scope="invoices", key="order-17", ttl="1 minute")
    stranger = connect("stranger")
    assert len(stranger.execute("select * from pgonce.runs").fetchall()) == 1
    assert len(stranger.execute("select * from pgonce.leases").fetchall()) == 1
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        call(stranger, "claim_key", scope="invoices", key="order-18", ttl="1 minute")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        stranger.execute("select * from pgonce.run")


def test_a_worker_may_read_besides(conn: Conn) -> None:
    call(conn, "grant_worker", role="stranger")
    call(conn, "grant_reader", role="stranger")
    assert may(conn, "stranger") >= WORKER | VIEWS


def test_only_the_owner_grants(connect: Connect) -> None:
    for role in ("worker", "reader", "stranger"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            call(connect(role), "grant_reader", role="stranger")


def test_refusals(conn: Conn) -> None:
    assert_refused(conn, "grant_reader", {"role": "reader"}, BAD_ROLES)
    assert may(conn, "stranger") == set()
