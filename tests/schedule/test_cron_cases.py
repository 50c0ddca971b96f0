"""Fire times that are known: those of cron_cases.tsv, and cases 33, 34 and 36."""

from __future__ import annotations

import csv
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from tests.helpers import Conn, call, call_all, value

with Path(__file__).with_name("cron_cases.tsv").open(newline="") as file:
    CASES = list(csv.DictReader(file, delimiter="\t"))


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(timezone.utc)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['expression']} {case['tz']} {case['want']}")
def test_known_fire_times(worker: Conn, case: dict[str, str]) -> None:
    schedule, zone, at = case["expression"], case["tz"], utc(case["from_instant"])
    window = call(worker, "window_at", schedule=schedule, timezone=zone, at=at)
    fire = window["window_start" if case["want"] == "prev" else "window_end"]
    assert fire == utc(case["right_utc"]) == utc(case["right_local"])
    wall = value(worker, "select %s at time zone %s", fire, zone)
    assert wall == datetime.fromisoformat(case["right_local"]).replace(tzinfo=None)


def starts(worker: Conn, schedule: str, zone: str, since: str, until: str) -> list[datetime]:
    windows = call_all(
        worker, "windows", schedule=schedule, timezone=zone, since=utc(since), until=utc(until)
    )
    return [window["window_start"] for window in windows]


def days(worker: Conn, schedule: str, since: str, until: str) -> list[str]:
    return [
        f"{start:%m-%d}" for start in starts(worker, schedule, "UTC", f"{since}T00:00Z", f"{until}T00:00Z")
    ]


@pytest.mark.parametrize(
    ("schedule", "want"),
    [
        # 2026-06-01 is a Monday
        ("0 9 1-3 * 1", ["06-01", "06-02", "06-03", "06-08", "06-15", "06-22", "06-29"]),  # either
        ("0 9 */2 * 1", ["06-01", "06-15", "06-29"]),  # a star begins a field: both
        ("0 9 1-3 * */7", []),  # both, and 06-07 is the first Sunday
        ("0 9 1-7 * */7", ["06-07"]),
        ("0 9 *,5 * 1", ["06-01", "06-08", "06-15", "06-22", "06-29"]),
        ("0 9 L * *", ["06-30"]),
        ("0 9 L-3,10 * *", ["06-10", "06-27"]),
        ("0 9 LW * *", ["06-30"]),
        ("0 9 6W,7W * *", ["06-05", "06-08"]),  # a Saturday and a Sunday
        ("0 9 31W * *", []),  # June has no 31st
        ("0 9 * * 5L", ["06-26"]),
        ("0 9 * * mon#5,2#1", ["06-02", "06-29"]),
        ("0 9 * * 7#1", ["06-07"]),
        ("0 9 * * FRI-SUN", [f"06-{day:02}" for day in (5, 6, 7, 12, 13, 14, 19, 20, 21, 26, 27, 28)]),
        ("0 9 * * SUN-SUN", ["06-07", "06-14", "06-21", "06-28"]),
        ("0 9 * * 7/3", [f"06-{day:02}" for day in (3, 6, 7, 10, 13, 14, 17, 20, 21, 24, 27, 28)]),  # 0, 3, 6
        ("0 9 29/1 * *", ["06-29", "06-30"]),
    ],
)
def test_day_fields(worker: Conn, schedule: str, want: list[str]) -> None:
    """Case 33. One whole month; the fields' texts decide whether both must match."""
    assert days(worker, schedule, "2026-06-01", "2026-07-01") == want


@pytest.mark.parametrize(
    ("schedule", "since", "until", "want"),
    [
        ("0 9 1W * *", "2026-08-01", "2026-09-01", ["08-03"]),  # Saturday the 1st: not back into July
        ("0 9 31W * *", "2026-05-01", "2026-06-01", ["05-29"]),  # Sunday the 31st: not on into June
        ("0 9 LW * *", "2026-05-01", "2026-06-01", ["05-29"]),
        ("0 9 29W 2 *", "2028-01-01", "2029-01-01", ["02-29"]),
        ("0 9 L-30 * *", "2026-01-01", "2026-05-01", ["01-01", "03-01"]),  # shorter months have no such day
    ],
)
def test_days_stay_inside_their_month(
    worker: Conn, schedule: str, since: str, until: str, want: list[str]
) -> None:
    assert days(worker, schedule, since, until) == want


@pytest.mark.parametrize(
    ("schedule", "at", "start", "end"),
    [
        ("0 0 29 2 *", "2026-01-01", "2024-02-29", "2028-02-29"),
        ("0 0 29 2 *", "2096-03-01", "2096-02-29", "2104-02-29"),  # 2100 is no leap year
        ("0 0 29 2 */7", "2060-01-01", "2032-02-29", "2060-02-29"),
        ("0 0 29 2 */7", "2088-03-01", "2088-02-29", "2128-02-29"),  # 40 years, the longest gap there is
        ("0 0 29 2 */7", "2128-02-28", "2088-02-29", "2128-02-29"),
    ],
)
def test_rare_days(worker: Conn, schedule: str, at: str, start: str, end: str) -> None:
    """Case 34, and case 6: however long ago the last fire time, the answer is found by a bounded search."""
    worker.execute("set statement_timeout = '5s'")
    window = call(worker, "window_at", schedule=schedule, at=utc(f"{at}T00:00Z"))
    assert window == {"window_start": utc(f"{start}T00:00Z"), "window_end": utc(f"{end}T00:00Z")}


@pytest.mark.parametrize(
    ("schedule", "zone", "night", "want"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),  # 02:30 does not exist: when the gap ends
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:30"]),  # 02:30 exists twice: the first one
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),  # one run for the whole gap
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-25", ["00:00", "00:30", "01:00", "01:30"]),  # repeats
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29", ["01:00"]),  # and moves
        ("30 * * * *", "Europe/Berlin", "2026-03-29", [f"{hour:02}:30" for hour in range(24)]),
        ("30 2 * * *", "America/New_York", "2026-03-08", ["07:00"]),
        ("30 1 * * *", "America/New_York", "2026-11-01", ["05:30"]),
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04", ["14:45"]),  # half an hour twice
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-03", ["15:30"]),  # half an hour missing
        ("0 0 * * *", "Africa/Cairo", "2026-04-23", ["22:00"]),  # midnight does not exist
        ("0 12 30 12 *", "Pacific/Apia", "2011-12-30", ["10:00"]),  # a day does not exist
        ("0 * 30 12 *", "Pacific/Apia", "2011-12-30", []),  # all hours: follows the clock
    ],
)
def test_nights_of_transitions(worker: Conn, schedule: str, zone: str, night: str, want: list[str]) -> None:
    """Case 36: the fire times of one day (UTC), in UTC."""
    day = utc(f"{night}T00:00Z")
    fires = starts(worker, schedule, zone, day.isoformat(), (day + timedelta(days=1)).isoformat())
    assert [f"{fire:%H:%M}" for fire in fires] == want
