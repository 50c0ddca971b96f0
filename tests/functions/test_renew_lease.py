"""renew_lease: the heartbeat of lease, operation and window alike. The ttl is ten minutes; it is noon."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.functions.holding import KINDS, NEVER_GRANTED, after, expires_at, granted, hold, sqlstate
from tests.functions.refusals import assert_refused, bad_durations, tables
from tests.helpers import Clock, Conn, call

Connect = Callable[..., Conn]

every_kind = pytest.mark.parametrize("kind", KINDS)


@every_kind
def test_the_whole_ttl_from_now(conn: Conn, clock: Clock, kind: str) -> None:
    """Case 15: a job longer than its ttl; null: the ttl granted, whatever was given before."""
    token = granted(conn, kind)["token"]
    for minutes, ttl, until in ((4, None, 14), (9, "30 minutes", 39), (38, None, 48), (47, "1 hour", 107)):
        clock.set(after(minutes=minutes))
        assert call(conn, "renew_lease", token=token, ttl=ttl) == after(minutes=until)
        assert expires_at(conn, token) == after(minutes=until)
        assert hold(conn, kind)["reason"] == "held"


@every_kind
def test_it_never_shortens(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(minutes=1)
    assert call(conn, "renew_lease", token=token, ttl="1 second") == after(minutes=10)
    clock.set(after(minutes=-30))  # the database's clock went back
    assert call(conn, "renew_lease", token=token) == after(minutes=10)
    assert expires_at(conn, token) == after(minutes=10)


def test_it_never_shortens_min_hold(conn: Conn, clock: Clock) -> None:
    token = call(conn, "acquire_lease", name="thing", ttl="1 minute", min_hold="5 minutes")["token"]
    clock.advance(minutes=1)
    assert call(conn, "renew_lease", token=token) == after(minutes=5)
    clock.advance(minutes=4)
    assert call(conn, "renew_lease", token=token) == after(minutes=6)


@every_kind
def test_late_when_nobody_came(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(hours=3)
    assert call(conn, "renew_lease", token=token) == after(hours=3, minutes=10)
    assert hold(conn, kind)["reason"] == "held"


@every_kind
def test_never_again_once_taken_over(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """Case 10: the first beat after the takeover raises, and every later one."""
    token = granted(conn, kind)["token"]
    clock.advance(minutes=10)
    other = granted(connect(), kind)
    for _ in range(3):
        assert sqlstate(conn, "renew_lease", token=token) == "ON001"
        clock.advance(minutes=9)
        call(conn, "renew_lease", token=other["token"])
    clock.advance(days=19)
    assert sqlstate(conn, "renew_lease", token=token) == "ON001"
    call(conn, "release_lease" if kind == "lease" else "mark_failed", token=other["token"])
    assert sqlstate(conn, "renew_lease", token=token) == "ON001"
    assert sqlstate(conn, "renew_lease", token=other["token"]) == "ON001"


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
def test_nothing_that_ended_is_revived(conn: Conn, clock: Clock, kind: str, ending: str) -> None:
    """Case 17: a beat in flight while its holder finishes."""
    token = granted(conn, kind)["token"]
    call(conn, ending, token=token)
    assert sqlstate(conn, "renew_lease", token=token) == "ON001"
    assert sqlstate(conn, "assert_held", token=token) == "ON001"


@every_kind
def test_max_hold(conn: Conn, clock: Clock, kind: str) -> None:
    """Case 15: a limit of its own, from the grant on: the whole ttl or ON003, and held all the same."""
    token = granted(conn, kind, max_hold="15 minutes")["token"]
    clock.set(after(minutes=5))
    assert call(conn, "renew_lease", token=token) == after(minutes=15)
    clock.set(after(minutes=5, microseconds=1))
    assert sqlstate(conn, "renew_lease", token=token) == "ON003"
    assert expires_at(conn, token) == after(minutes=15)
    assert call(conn, "renew_lease", token=token, ttl="9 minutes") == after(minutes=15)
    clock.set(after(minutes=14, seconds=59))
    assert sqlstate(conn, "renew_lease", token=token, ttl="1.1 seconds") == "ON003"
    assert call(conn, "assert_held", token=token) is True
    assert hold(conn, kind)["reason"] == "held"
    clock.set(after(minutes=16))
    assert sqlstate(conn, "renew_lease", token=token, ttl="1 second") == "ON003"
    assert call(conn, "assert_held", token=token) is True


@every_kind
def test_max_hold_says_until_when_it_is_held(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind, max_hold="15 minutes")["token"]
    clock.advance(minutes=6)
    with pytest.raises(psycopg.Error) as raised:
        call(conn, "renew_lease", token=token)
    said = raised.value.diag
    assert said.sqlstate == "ON003"
    assert "max_hold is reached" in (said.message_primary or "")
    assert "held until" in (said.message_detail or "")
    assert said.message_hint


@every_kind
def test_max_hold_starts_anew_with_a_takeover(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    granted(conn, kind, max_hold="15 minutes")
    clock.advance(minutes=10)
    token = granted(connect(), kind, max_hold="15 minutes")["token"]
    clock.advance(minutes=5)
    assert call(conn, "renew_lease", token=token) == after(minutes=25)


def test_the_default_ttl_is_cut_to_max_hold(conn: Conn, clock: Clock) -> None:
    """And a renewal by that default would pass max_hold at once."""
    call(conn, "define_job", job="thing", schedule="@daily", max_hold="15 minutes")
    answer = call(conn, "claim_window", job="thing")
    assert answer["expires_at"] == after(minutes=15)
    assert call(conn, "renew_lease", token=answer["token"]) == after(minutes=15)
    clock.advance(seconds=1)
    assert sqlstate(conn, "renew_lease", token=answer["token"]) == "ON003"
    assert call(conn, "renew_lease", token=answer["token"], ttl="14 minutes") == after(minutes=15)


@every_kind
def test_whose_token_it_is(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """The role's it was granted to, and the schema owner's."""
    worker = connect("worker")
    token = granted(worker, kind)["token"]
    clock.advance(minutes=1)
    assert sqlstate(connect("worker2"), "renew_lease", token=token) == "ON001"
    assert expires_at(conn, token) == after(minutes=10)
    assert call(connect("worker"), "renew_lease", token=token) == after(minutes=11)
    clock.advance(minutes=1)
    assert call(conn, "renew_lease", token=token) == after(minutes=12)


def test_a_token_that_was_never_granted(conn: Conn, clock: Clock) -> None:
    for kind in KINDS:
        granted(conn, kind)
    before = tables(conn)
    for token in NEVER_GRANTED:
        assert sqlstate(conn, "renew_lease", token=token) == "ON001"
    assert tables(conn) == before


@every_kind
def test_refusals(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind, max_hold="1 hour")["token"]
    assert_refused(
        conn,
        "renew_lease",
        {"token": token, "ttl": "1 minute"},
        [
            *bad_durations(conn, "ttl", zero=False),
            ("ttl", "61 minutes", "ttl 01:01:00 is above max_hold 01:00:00", "at most max_hold"),
        ],
    )


def test_a_bad_ttl_is_refused_whatever_the_token(conn: Conn, clock: Clock) -> None:
    assert sqlstate(conn, "renew_lease", token=1, ttl="1 month") == "22023"
    assert sqlstate(conn, "renew_lease", token=None, ttl="-1 second") == "22023"
