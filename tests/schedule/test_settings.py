"""Rule 11, case 37: no setting of the session changes a window.

Seen to fail: without `set timezone` on _window, TimeZone = 'UTC-5' moves every window in UTC by five hours on
PostgreSQL 18 (at time zone prefers the abbreviations of the session's own zone).
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone

import pytest

from tests.helpers import Conn, value

AT = datetime(2026, 10, 25, 0, 40, tzinfo=timezone.utc)  # in Berlin the night with two 02:30
SCHEDULES = [
    ("*/10 * * * *", "UTC"),
    ("30 2 * * *", "Europe/Berlin"),
    ("*/30 1-3 * * *", "Europe/Berlin"),
    ("0 0 29 2 SUN", "America/New_York"),
    ("every 1 day 02:00:00", "UTC"),
    ("every 36 hours", "Pacific/Apia"),
]

QUERY = """
    select extract(epoch from w.window_start)::bigint as starts,
           extract(epoch from w.window_end)::bigint as ends
    from pgonce.window_at(%(schedule)s, %(zone)s, %(at)s) as w
    union all
    select extract(epoch from w.window_start)::bigint, extract(epoch from w.window_end)::bigint
    from pgonce.windows(%(schedule)s, %(zone)s, %(at)s, %(until)s) as w
"""

ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/St_Johns",
    "Pacific/Apia",
    "Asia/Kathmandu",
    "UTC-5",
    "<UTC>-5",
    "<Europe/Berlin>-7",
    "Asia/Tokyo",
]
SETTINGS = [
    *[{"TimeZone": zone} for zone in ZONES],
    *[{"DateStyle": style} for style in ("ISO, DMY", "SQL, DMY", "German, DMY", "Postgres, YMD")],
    *[{"IntervalStyle": style} for style in ("postgres", "postgres_verbose", "sql_standard", "iso_8601")],
    {"search_path": ""},
    {"search_path": "evil, pg_catalog"},
    {"extra_float_digits": "-15", "standard_conforming_strings": "off"},
    {"timezone_abbreviations": "Australia"},
    {"plan_cache_mode": "force_generic_plan", "jit_above_cost": "0"},
]


def answers(conn: Conn) -> list[object]:
    return [
        conn.execute(
            QUERY, {"schedule": schedule, "zone": zone, "at": AT, "until": AT + timedelta(days=4)}
        ).fetchall()
        for schedule, zone in SCHEDULES
    ]


@pytest.fixture
def evil(conn: Conn) -> None:
    """Things of other people that carry the names of ours."""
    conn.execute("""
        create schema evil;
        grant usage on schema evil to public;
        create function evil.to_timestamp(float8) returns timestamptz language sql as 'select now()';
        create function evil.mod(bigint, bigint) returns bigint language sql as 'select 0::bigint';
        create function evil.bit_count(bit) returns bigint language sql as 'select 3::bigint';
        create function evil.date_part(text, timestamp) returns float8 language sql as 'select 0::float8';
        create function evil.minus(bigint, bigint) returns bigint language sql as 'select 0::bigint';
        create operator evil.- (leftarg = bigint, rightarg = bigint, function = evil.minus);
        create view evil.pg_timezone_names as select 'none'::text as name;
        grant select on evil.pg_timezone_names to public;
    """)


@pytest.mark.usefixtures("evil")
def test_settings_change_nothing(connect: Callable[..., Conn]) -> None:
    want = answers(connect("worker"))
    assert all(len(answer) > 1 for answer in want[:3] + want[4:])  # type: ignore[arg-type]
    for settings in SETTINGS:
        worker = connect("worker")
        for name, setting in settings.items():
            worker.execute("select set_config(%s, %s, false)", (name, setting))
        before = [value(worker, "select current_setting(%s)", name) for name in settings]
        assert answers(worker) == want, settings
        assert [value(worker, "select current_setting(%s)", name) for name in settings] == before


def test_temporary_things_change_nothing(conn: Conn) -> None:
    want = answers(conn)
    conn.execute("create temporary table pg_timezone_names as select 'none'::text as name")
    conn.execute(
        "create function pg_temp.mod(bigint, bigint) returns bigint language sql as 'select 0::bigint'"
    )
    assert answers(conn) == want
