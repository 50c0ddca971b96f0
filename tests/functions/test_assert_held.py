"""assert_held: true, or ON001. (What it keeps out until the transaction ends: tests/rules.) It is noon."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.functions.holding import KINDS, NEVER_GRANTED, granted, sqlstate
from tests.helpers import Clock, Conn, call, psql

Connect = Callable[..., Conn]

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_true_while_it_is_held(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """Also past expires_at, as long as nobody came; never again once somebody came."""
    token = granted(conn, kind)["token"]
    assert call(conn, "assert_held", token=token) is True
    clock.advance(hours=3)
    assert call(conn, "assert_held", token=token) is True
    other = granted(connect(), kind)["token"]
    assert sqlstate(conn, "assert_held", token=token) == "ON001"
    assert call(conn, "assert_held", token=other) is True


@pytest.mark.parametrize(
    ("kind", "ending"),
    [
        ("lease", "release_lease"),
        ("operation", "mark_done"),
        ("operation", "mark_failed"),
        ("window", "mark_done"),
        ("window", "mark_failed"),
    ],
)
def test_not_what_has_ended(conn: Conn, clock: Clock, kind: str, ending: str) -> None:
    token = granted(conn, kind)["token"]
    call(conn, ending, token=token)
    assert sqlstate(conn, "assert_held", token=token) == "ON001"


def test_not_a_released_lease_that_min_hold_keeps(conn: Conn, clock: Clock) -> None:
    token = call(conn, "acquire_lease", name="thing", ttl="1 minute", min_hold="5 minutes")["token"]
    call(conn, "release_lease", token=token)
    assert sqlstate(conn, "assert_held", token=token) == "ON001"


@every_kind
def test_any_worker_may_ask(connect: Connect, clock: Clock, kind: str) -> None:
    """The job's own role may not be the one that claimed; a stranger may not."""
    token = granted(connect("worker"), kind)["token"]
    assert call(connect("worker2"), "assert_held", token=token) is True
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        call(connect("stranger"), "assert_held", token=token)


def test_a_token_that_was_never_granted(conn: Conn, clock: Clock) -> None:
    for kind in KINDS:
        granted(conn, kind)
    for token in NEVER_GRANTED:
        assert sqlstate(conn, "assert_held", token=token) == "ON001"


@pytest.mark.parametrize("token", [None, 17])
def test_the_error_says_what_to_do(conn: Conn, clock: Clock, token: int | None) -> None:
    with pytest.raises(psycopg.Error) as raised:
        call(conn, "assert_held", token=token)
    said = raised.value.diag
    assert said.message_primary == f"token {token or 'null'} holds nothing"
    assert said.message_hint


def test_a_script_stops_by_itself(dsn: str, conn: Conn) -> None:
    script = """
        select pgonce.assert_held(token) from pgonce.claim_window('nightly', '@yearly');
        \\echo works
    """
    assert "works" in psql(dsn, script=script).stdout
    denied = psql(dsn, script=script, check=False)
    assert denied.returncode == 3
    assert "works" not in denied.stdout
    assert "token null holds nothing" in denied.stderr
