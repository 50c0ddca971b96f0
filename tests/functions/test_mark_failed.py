"""mark_failed: the attempt is over, the run can be had again later. The ttl is ten minutes; it is noon."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from tests.functions.holding import KINDS, NEVER_GRANTED, NOON, after, granted, hold, run, sqlstate
from tests.functions.refusals import assert_refused, bad_durations, tables
from tests.helpers import Clock, Conn, Row, call, value

Connect = Callable[..., Conn]

RUNS = [kind for kind in KINDS if kind != "lease"]

every_run = pytest.mark.parametrize("kind", RUNS)


def record(conn: Conn) -> Row:
    (key,) = (row["key"] for row in conn.execute("select key from pgonce.runs").fetchall())
    return run(conn, "thing", key)


@every_run
def test_it_is_on_record(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(minutes=1)
    assert call(conn, "mark_failed", token=token, error="boom\nand a trace") is True
    after_it = record(conn)
    assert (after_it["state"], after_it["error"], after_it["result"]) == ("failed", "boom\nand a trace", None)
    assert (after_it["finished_at"], after_it["attempt"], after_it["token"]) == (after(minutes=1), 1, token)
    assert after_it["expired"] is False
    assert value(conn, "select keep_until from pgonce.run") == after(days=90, minutes=1)


@every_run
def test_an_error_is_any_text(conn: Conn, clock: Clock, kind: str) -> None:
    call(conn, "define_job", job="thing", max_attempts=9, schedule="@daily" if kind == "window" else None)
    for error in (None, "", " ", "x" * 100_000, "%s :x $$"):
        call(conn, "mark_failed", token=granted(conn, kind)["token"], error=error, retry_in="0")
        assert record(conn)["error"] == error


@every_run
def test_it_can_be_had_again_after_30_seconds_doubling_to_an_hour(
    conn: Conn, clock: Clock, kind: str
) -> None:
    call(conn, "define_job", job="thing", max_attempts=40, schedule="@daily" if kind == "window" else None)
    waits = []
    for attempt in range(1, 40):
        clock.set(NOON)  # so that all attempts fall into the same window
        conn.execute("update pgonce.run set retry_at = %s", (NOON,))
        claim = granted(conn, kind)
        assert claim["attempt"] == attempt
        call(conn, "mark_failed", token=claim["token"])
        denied = hold(conn, kind)
        assert denied["reason"] == "backoff"
        waits.append(denied["retry_at"] - NOON)
    seconds = [30, 60, 120, 240, 480, 960, 1920, *[3600] * 32]
    assert waits == [timedelta(seconds=each) for each in seconds]


@every_run
@pytest.mark.parametrize(
    ("retry_in", "wait"),
    [
        ("100 milliseconds", timedelta(seconds=0.1)),
        ("1 day", timedelta(days=1)),
        ("366 days", timedelta(days=366)),
    ],
)
def test_retry_in(conn: Conn, clock: Clock, kind: str, retry_in: str, wait: timedelta) -> None:
    clock.advance(minutes=1)
    token = granted(conn, kind)["token"]
    call(conn, "mark_failed", token=token, retry_in=retry_in)
    answer = hold(conn, kind)
    assert (answer["reason"], answer["attempt"], answer["retry_at"]) == (
        "backoff",
        1,
        after(minutes=1) + wait,
    )


@every_run
def test_at_once(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """A host that is being stopped gives its run back; the token it had is no good any more."""
    token = granted(conn, kind)["token"]
    call(conn, "mark_failed", token=token, retry_in="0")
    other = granted(connect(), kind)
    assert other["attempt"] == 2
    assert other["token"] > token
    for function in ("renew_lease", "assert_held", "mark_done", "mark_failed"):
        assert sqlstate(conn, function, token=token) == "ON001"


def failed(conn: Conn, kind: str, **arguments: object) -> int:
    """Ask for it, and mark what is granted failed; the number of the attempt."""
    claim = granted(conn, kind)
    assert call(conn, "mark_failed", token=claim["token"], **{"retry_in": "0", **arguments}) is True
    attempt: int = claim["attempt"]
    return attempt


def define(conn: Conn, kind: str, **settings: object) -> None:
    call(conn, "define_job", job="thing", schedule="@daily" if kind == "window" else None, **settings)


@every_run
def test_not_counted(conn: Conn, clock: Clock, kind: str) -> None:
    """Case 72: four deploys in one window, each ends the command; the fifth host still gets it, and so do two
    that fail. Seen to fail (exhausted).
    """
    assert [failed(conn, kind, counted=False) for _ in range(4)] == [1, 1, 1, 1]
    assert record(conn)["attempt"] == 1
    assert [failed(conn, kind), failed(conn, kind, counted=True)] == [1, 2]
    assert [failed(conn, kind, counted=False) for _ in range(4)] == [3, 3, 3, 3]
    assert failed(conn, kind) == 3
    answer = hold(conn, kind)
    assert (answer["reason"], answer["attempt"]) == ("exhausted", 3)


@every_run
def test_not_counted_and_fewer_attempts_since(conn: Conn, clock: Clock, kind: str) -> None:
    """Two counted attempts are all that two allow. Seen to fail: uncounted ones went on without end."""
    define(conn, kind, max_attempts=3)
    assert [failed(conn, kind), failed(conn, kind), failed(conn, kind, counted=False)] == [1, 2, 3]
    define(conn, kind, max_attempts=2)
    assert hold(conn, kind)["reason"] == "exhausted"
    define(conn, kind, max_attempts=3)
    assert granted(conn, kind)["attempt"] == 3


@every_run
def test_not_counted_then_lost(conn: Conn, clock: Clock, kind: str) -> None:
    """The next holder's attempt counts again, however it ends."""
    define(conn, kind, max_attempts=2)
    assert failed(conn, kind, counted=False) == 1
    for attempt in (1, 2):
        assert granted(conn, kind)["attempt"] == attempt
        clock.advance(minutes=10)
    assert hold(conn, kind)["reason"] == "exhausted"


@every_run
def test_not_counted_waits_as_others_do(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    assert call(conn, "mark_failed", token=token, counted=False) is True
    answer = hold(conn, kind)
    assert (answer["reason"], answer["retry_at"]) == ("backoff", after(seconds=30))


@every_run
def test_at_most_once_stays_so(conn: Conn, clock: Clock, kind: str) -> None:
    """What is defined when somebody asks again decides, as for every attempt."""
    define(conn, kind, max_attempts=1)
    assert failed(conn, kind, counted=False) == 1
    assert hold(conn, kind)["reason"] == "exhausted"
    define(conn, kind, max_attempts=2)
    assert failed(conn, kind, counted=False) == 1
    define(conn, kind, max_attempts=1)
    assert hold(conn, kind)["reason"] == "exhausted"


def test_at_most_once_until_it_is_kept_no_longer(conn: Conn, clock: Clock) -> None:
    """An exhausted operation may be granted anew after keep, counted or not."""
    define(conn, "operation", max_attempts=1, keep="1 day")
    assert failed(conn, "operation", counted=False) == 1
    clock.advance(hours=23)
    assert hold(conn, "operation")["reason"] == "exhausted"
    clock.advance(hours=1)
    assert granted(conn, "operation")["attempt"] == 1


@every_run
def test_the_same_call_again(conn: Conn, clock: Clock, kind: str) -> None:
    """True; the first error, time and wait stay. The other finishing call: ON001."""
    token = granted(conn, kind)["token"]
    call(conn, "mark_failed", token=token, error="first", retry_in="1 hour")
    before = tables(conn)
    for minutes in (0, 1, 120):
        clock.set(after(minutes=minutes))
        assert call(conn, "mark_failed", token=token, error="second", retry_in="2 hours") is True
        assert call(conn, "mark_failed", token=token, counted=False) is True
        assert sqlstate(conn, "mark_done", token=token) == "ON001"
    assert tables(conn) == before


@every_run
def test_late_when_nobody_came(conn: Conn, clock: Clock, kind: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(hours=3)
    assert call(conn, "mark_failed", token=token) is True
    assert record(conn)["state"] == "failed"


@every_run
@pytest.mark.parametrize("other_is", ["running", "done", "failed"])
def test_taken_over(conn: Conn, connect: Connect, clock: Clock, kind: str, other_is: str) -> None:
    token = granted(conn, kind)["token"]
    clock.advance(minutes=10)
    other = granted(connect(), kind)["token"]
    if other_is != "running":
        call(conn, f"mark_{other_is}", token=other)
    before = tables(conn)
    assert sqlstate(conn, "mark_failed", token=token, error="stale") == "ON001"
    assert tables(conn) == before


@every_run
def test_whose_token_it_is(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """The role's it was granted to, and the schema owner's."""
    token = granted(connect("worker"), kind)["token"]
    assert sqlstate(connect("worker2"), "mark_failed", token=token) == "ON001"
    assert record(conn)["state"] == "running"
    assert call(connect("worker"), "mark_failed", token=token, retry_in="0") is True
    token = granted(connect("worker"), kind)["token"]
    assert call(conn, "mark_failed", token=token) is True


def test_a_token_that_was_never_granted(conn: Conn, clock: Clock) -> None:
    for kind in KINDS:
        granted(conn, kind)
    before = tables(conn)
    for token in NEVER_GRANTED:
        assert sqlstate(conn, "mark_failed", token=token) == "ON001"
    assert tables(conn) == before


@every_run
def test_refusals(conn: Conn, clock: Clock, kind: str) -> None:
    """Running or failed; and a lease is released, not finished."""
    lease, token = granted(conn, "lease")["token"], granted(conn, kind)["token"]
    for _ in range(2):
        assert_refused(
            conn,
            "mark_failed",
            {"token": token, "error": "boom", "retry_in": "1 minute"},
            [
                *bad_durations(conn, "retry_in", zero=True),
                ("token", lease, f"token {lease} is that of a lease", "release_lease"),
            ],
        )
        call(conn, "mark_failed", token=token)
