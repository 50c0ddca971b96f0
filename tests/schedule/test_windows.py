"""window_at and windows: how windows lie beside each other, and what they count from."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest

from tests.helpers import Clock, Conn, Row, call, call_all, value

UTC = timezone.utc
MICROSECOND = timedelta(microseconds=1)
SECOND = timedelta(seconds=1)
DAY = timedelta(days=1)


def windows(conn: Conn, schedule: str, zone: str, since: datetime, until: datetime) -> list[Row]:
    return call_all(conn, "windows", schedule=schedule, timezone=zone, since=since, until=until)


SCHEDULES = [
    ("*/20 * * * *", "Europe/Berlin"),
    ("0,30 0-4 * * *", "Europe/Berlin"),
    ("*/15 0-4 * * *", "America/New_York"),
    ("10,40 0-4 * * *", "Australia/Lord_Howe"),
    ("0 0 * * *", "Africa/Cairo"),
    ("0 9 LW * *", "Antarctica/Troll"),
    ("0 9 1-7 * 1", "UTC"),
    ("every 7 hours", "Europe/Berlin"),
    ("@weekly", "Pacific/Apia"),
]


@pytest.mark.parametrize(("schedule", "zone"), SCHEDULES)
def test_consecutive_windows_abut(worker: Conn, schedule: str, zone: str) -> None:
    """Through both transitions of a year; and window_at agrees at either edge."""
    for since in (datetime(2026, 3, 20, tzinfo=UTC), datetime(2026, 9, 20, tzinfo=UTC)):
        found = windows(worker, schedule, zone, since, since + 45 * DAY)
        assert found
        assert since <= found[0]["window_start"]
        assert found[-1]["window_start"] < since + 45 * DAY <= found[-1]["window_end"]
        for earlier, later in pairwise(found):
            assert earlier["window_start"] < earlier["window_end"] == later["window_start"]
        for window in found[:: max(1, len(found) // 5)]:
            for at in (window["window_start"], window["window_end"] - MICROSECOND):
                assert call(worker, "window_at", schedule=schedule, timezone=zone, at=at) == window


def test_since_belongs_to_it_and_until_does_not(worker: Conn) -> None:
    three = datetime(2026, 6, 1, 3, tzinfo=UTC)
    one = [{"window_start": three, "window_end": three + DAY}]
    assert windows(worker, "0 3 * * *", "UTC", three, three + DAY) == one
    assert windows(worker, "0 3 * * *", "UTC", three - DAY + MICROSECOND, three + MICROSECOND) == one
    assert windows(worker, "0 3 * * *", "UTC", three + MICROSECOND, three + DAY) == []
    assert windows(worker, "0 3 * * *", "UTC", three - MICROSECOND, three) == []
    assert windows(worker, "0 3 * * *", "UTC", three, three) == []


def test_the_present_is_the_databases(connect: Callable[..., Conn], clock: Clock) -> None:
    """`at` left out; zone left out; the window ends when the next one begins, to the microsecond."""
    worker = connect("worker", options="-c TimeZone=UTC")
    start = datetime(2031, 5, 6, 7, 30, tzinfo=UTC)
    window = {"window_start": start, "window_end": start + timedelta(minutes=30)}
    for instant in (start, start + MICROSECOND, start + timedelta(minutes=30) - MICROSECOND):
        clock.set(instant)
        assert call(worker, "window_at", schedule="*/30 * * * *") == window
        assert call(worker, "window_at", schedule="*/30 * * * *", timezone="UTC", at=instant) == window
    clock.set(start + timedelta(minutes=30))
    assert call(worker, "window_at", schedule="*/30 * * * *")["window_start"] == window["window_end"]
    clock.set(start - MICROSECOND)
    assert call(worker, "window_at", schedule="*/30 * * * *")["window_end"] == start


@pytest.mark.parametrize(
    ("macro", "schedule"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * 0"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@hourly", "0 * * * *"),
    ],
)
def test_macros(worker: Conn, macro: str, schedule: str) -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    found = windows(worker, macro, "Europe/Berlin", since, since + 400 * DAY)
    assert found == windows(worker, schedule, "Europe/Berlin", since, since + 400 * DAY)
    assert found


@pytest.mark.parametrize(
    ("schedule", "stride"),
    [
        ("every 1 second", SECOND),
        ("every 90 minutes", timedelta(minutes=90)),
        ("every 7 minutes 30 seconds", timedelta(seconds=450)),
        ("every 1.5 hours", timedelta(minutes=90)),
        ("every 01:30", timedelta(minutes=90)),
        ("every PT90M", timedelta(minutes=90)),
        ("every 45", timedelta(seconds=45)),
        ("every 1 week", 7 * DAY),
        ("every 366 days", 366 * DAY),
        ("every 1 day 2 hours", timedelta(hours=26)),
        ("every 5400 s", timedelta(minutes=90)),
    ],
)
def test_every(worker: Conn, schedule: str, stride: timedelta) -> None:
    """Counted from Monday, 2000-01-03 00:00 UTC, in both directions; no zone matters; a day has 24 hours."""
    origin = datetime(2000, 1, 3, tzinfo=UTC)
    for at in (
        origin,
        origin - MICROSECOND,
        origin + stride - MICROSECOND,
        origin - 10 * stride,
        datetime(1900, 1, 1, tzinfo=UTC),
        datetime(2026, 3, 29, 1, 0, 0, 1, tzinfo=UTC),
        datetime(2026, 10, 25, 0, 59, 59, 999_999, tzinfo=UTC),
        datetime(9990, 6, 5, 4, 3, 2, 999_999, tzinfo=UTC),
    ):
        start = origin + (at - origin) // stride * stride
        for zone in ("UTC", "Europe/Berlin"):
            window = call(worker, "window_at", schedule=schedule, timezone=zone, at=at)
            assert window == {"window_start": start, "window_end": start + stride}


def test_far_future_is_exact_to_the_microsecond(worker: Conn) -> None:
    """Seconds as a double would be rounded up to the next fire time here."""
    fire = datetime(9998, 6, 1, 3, tzinfo=UTC)
    before = call(worker, "window_at", schedule="0 3 * * *", at=fire - MICROSECOND)
    assert before == {"window_start": fire - DAY, "window_end": fire}


def test_nothing_is_written(worker: Conn) -> None:
    """Not even a transaction id, though `every` catches an error."""
    with worker.transaction():
        call(worker, "window_at", schedule="every 5 minutes")
        call(worker, "window_at", schedule="0 3 * * *", timezone="Europe/Berlin")
        instant = datetime(2026, 1, 1, tzinfo=UTC)
        windows(worker, "0 3 * * *", "UTC", instant, instant + 3 * DAY)
        assert value(worker, "select pg_current_xact_id_if_assigned()") is None
