"""What window_at and windows refuse: 22023, argument and value in the message, a hint that fits (rule 12).

All of it on a read-only session, so nothing can have been written; it stays usable after each refusal.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from psycopg.errors import InvalidParameterValue

from tests.helpers import Conn, call, value

FIVE = "Five fields: minute hour day month weekday"
MINUTE = "The minute is 0 to 59, alone or as *, */2, 1-5, 1-5/2 or 1,3."
HOUR = "The hour is 0 to 23, alone or as *, */2, 1-5, 1-5/2 or 1,3."
DAY = "The day of the month is 1 to 31, alone or as *, */2, 1-5, 1-5/2 or 1,3."
MONTH = "The month is 1 to 12 or JAN to DEC, alone or as *, */2, 1-5, 1-5/2 or 1,3."
WEEKDAY = (
    "The day of the week is 0 to 7 or SUN to SAT (0 and 7 are Sunday), alone or as *, */2, 1-5, 1-5/2 or 1,3."
)
HOSTS = "H, R and ~ mean another time on each host, but a window has one start: choose a value, such as 17."
AROUND = "Around L and W the day of the month knows: L, L-1 to L-30, LW, 1W to 31W."
NTH = "The last Friday of the month is 5L or FRIL, the first one 5#1 or FRI#1 (1 to 5)."
PLACE = "L and W belong in the day of the month; 5L (last Friday) in the day of the week."
EMPTY_ITEM = "Put a value between two commas, and none at either end: 1,15."
ASCII = "Use letters, digits and * , - / # between spaces or tabs."
SPACE = "Take it away: schedules are compared byte for byte."
ZONE = "Give the zone by itself: timezone => 'Europe/Berlin'."
COMMENT = "Leave the comment out."
NEVER = "No month named has such a day; the last day of a month is L: 0 0 L 2 *."
EVERY = "Write every and 1 second to 366 days, in whole seconds: every 90 seconds, every 2 hours."
EVERY_MONTH = "Write @monthly or @yearly, or every 30 days."
MACROS = "There are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly."

SCHEDULES = {
    # the text as a whole
    "": "Write a schedule: 0 3 * * *, @daily or every 15 minutes.",
    "0 3 * * " + ",".join(["1"] * 97): "At most 200 characters: make two jobs of it.",
    "0 3 * * ²": ASCII,
    "\uff10 3 * * *": ASCII,  # a full-width 0
    "0 3 * * *\n": ASCII,
    "0\u00a03 * * *": ASCII,
    "0 3 * * \x01": ASCII,
    " 0 3 * * *": SPACE,
    "0 3 * * *\t": SPACE,
    " ": SPACE,
    " @daily": SPACE,
    "every 5 minutes ": SPACE,
    "CRON_TZ=UTC 0 3 * * *": ZONE,
    "TZ=Europe/Berlin 0 3 * * *": ZONE,
    "# nightly": COMMENT,
    "0 3 * * * # nightly": COMMENT,
    "0 3 * * * #": COMMENT,
    "0 0 * * #1": COMMENT,
    "@reboot": "A reboot opens no window: start the command when the system starts.",
    "@every 5m": "Write it without the @: every 5m",
    "@every": "Write it without the @: every",
    "@fortnightly": MACROS,
    "@": MACROS,
    "@daily @hourly": MACROS,
    "@daily * * * *": MACROS,
    "0 0 3 * * *": FIVE + ". No seconds (write every 30 seconds) and no year.",
    "0 0 3 * * * 2026": FIVE + ". No seconds (write every 30 seconds) and no year.",
    "0 3 * *": FIVE + "; or @daily, or every 15 minutes.",
    "*": FIVE + "; or @daily, or every 15 minutes.",
    "5m": FIVE + "; or @daily, or every 15 minutes.",
    "0 3 * * * /usr/bin/do it now": FIVE + "; or @daily, or every 15 minutes.",
    "every5minutes": FIVE + "; or @daily, or every 15 minutes.",
    # every
    "every": EVERY,
    "every x": EVERY,
    "every minute": EVERY,
    "every 5 minutes and a half": EVERY,
    "every 0 seconds": EVERY,
    "every 999 milliseconds": EVERY,
    "every 1.5 seconds": EVERY,
    "every 1 second 1 microsecond": EVERY,
    "every -5 minutes": EVERY,
    "every +5 minutes": EVERY,
    "every 1 day -1 hour": EVERY,
    "every 5 minutes ago": EVERY,
    "every 367 days": EVERY,
    "every 366 days 1 second": EVERY,
    "every 99999999999 days": EVERY,
    "every 999999999999999999999 seconds": EVERY,
    "every infinity": EVERY,
    "every NaN": EVERY,
    "every 1 month": EVERY_MONTH,
    "every 1 year": EVERY_MONTH,
    "every 0.5 months": EVERY_MONTH,
    "every 0.01 years": EVERY_MONTH,
    "every 1 month 1 day": EVERY_MONTH,
    "every P1M": EVERY_MONTH,
    # items
    "0 3 ? * *": "Write * where other dialects write ?.",
    "? ? ? ? ?": "Write * where other dialects write ?.",
    "H 3 * * *": HOSTS,
    "h/15 * * * *": HOSTS,
    "H(0-29) * * * *": HOSTS,
    "R * * * *": HOSTS,
    "0~30 * * * *": HOSTS,
    "~ * * * *": HOSTS,
    "-5 * * * *": "Values have no sign: 0 to 59.",
    "0 +3 * * *": "Values have no sign: 0 to 23.",
    "0 0 1--3 * *": "Values have no sign: 1 to 31.",
    "0 0 * */-2 *": "Values have no sign: 1 to 12 or JAN to DEC.",
    "0 3 * * MONDAY": "Names have three letters: MON.",
    "0 3 * * mon-friday": "Names have three letters: FRI.",
    "0 3 1 january *": "Names have three letters: JAN.",
    "0 3 1 SEPT *": "Names have three letters: SEP.",
    "1,,2 * * * *": EMPTY_ITEM,
    ",1 * * * *": EMPTY_ITEM,
    "0 3, * * *": EMPTY_ITEM,
    ", , , , ,": EMPTY_ITEM,
    "0 0 L-0 * *": AROUND,
    "0 0 L-31 * *": AROUND,
    "0 0 L- * *": AROUND,
    "0 0 L-3W * *": AROUND,
    "0 0 0W * *": AROUND,
    "0 0 32W * *": AROUND,
    "0 0 W * *": AROUND,
    "0 0 1-5W * *": AROUND,
    "0 0 L/2 * *": AROUND,
    "0 0 * * L": NTH,
    "0 0 * * 8L": NTH,
    "0 0 * * 5#": NTH,
    "0 0 * * 5#0": NTH,
    "0 0 * * 5#6": NTH,
    "0 0 * * 1-3#2": NTH,
    "0 0 * * XYZ#2": NTH,
    "L * * * *": PLACE,
    "0 5W * * *": PLACE,
    "0 0 * L *": PLACE,
    "0 0 * * 5W": PLACE,
    "0 0 5#1 * *": "# belongs in the day of the week: 5#1 is the first Friday.",
    "1#2 * * * *": "# belongs in the day of the week: 5#1 is the first Friday.",
    "60 * * * *": MINUTE,
    "0-60 * * * *": MINUTE,
    "61-62 * * * *": MINUTE,
    "005 * * * *": MINUTE,
    "** * * * *": MINUTE,
    "*5 * * * *": MINUTE,
    "*-5 * * * *": MINUTE,
    "5- * * * *": MINUTE,
    "5/ * * * *": MINUTE,
    "/5 * * * *": MINUTE,
    "1-2-3 * * * *": MINUTE,
    "1/2/3 * * * *": MINUTE,
    "1.5 * * * *": MINUTE,
    "0x1 * * * *": MINUTE,
    "1e1 * * * *": MINUTE,
    "a * * * *": MINUTE,
    "every1 day 2 hours 3": MINUTE,
    "MON * * * *": MINUTE,
    "0 24 * * *": HOUR,
    "0 JAN * * *": HOUR,
    "0 0 0 * *": DAY,
    "0 0 32 * *": DAY,
    "0 0 MON * *": DAY,
    "0 0 1-32 * *": DAY,
    "0 0 * 0 *": MONTH,
    "0 0 * 13 *": MONTH,
    "0 0 * MON *": MONTH,
    "0 0 * JA *": MONTH,
    "0 0 * JAN-13 *": MONTH,
    "* * * * *x": WEEKDAY,
    "0 0 * * 8": WEEKDAY,
    "0 0 * * 1-8": WEEKDAY,
    "0 0 * * JAN": WEEKDAY,
    "0 0 * * MO": WEEKDAY,
    # steps
    "*/90 * * * *": "Write: every 90 minutes.",
    "*/60 * * * *": "Write: every 60 minutes.",
    "0 */36 * * *": "Write: every 36 hours.",
    "0 0 */45 * *": "Write: every 45 days.",
    "0-59/120 * * * *": "Write: every 120 minutes.",
    "*/0 * * * *": "A step is 1 to 59 here.",
    "5/0 * * * *": "A step is 1 to 59 here.",
    "*/005 * * * *": "A step is 1 to 59 here.",
    "0 */0 * * *": "A step is 1 to 23 here.",
    "0 0 */0 * *": "A step is 1 to 31 here.",
    "0 0 1 */13 *": "A step is 1 to 12 here.",
    "0 0 * * */8": "A step is 1 to 7 here.",
    # reversed
    "0 22-2 * * *": "Write 22-23,0-2.",
    "50-10/5 * * * *": "Write 50-59,0-10.",
    "0 0 28-3 * *": "Write 28-31,1-3.",
    "0 0 * NOV-FEB *": "Write NOV-12,1-FEB.",
    "0 0 * * FRI-MON": "Write FRI-6,0-MON.",
    "0 0 * * 7-1": "Write 0-1.",
    # never
    "0 0 31 2 *": NEVER,
    "0 0 30 2 *": NEVER,
    "0 0 30,31 2 *": NEVER,
    "0 0 31 4,6,9,11 *": NEVER,
    "0 0 30W 2 *": NEVER,
    "0 0 L-29 2 *": NEVER,
    "0 0 29W 2 */7": NEVER,
    "0 0 */31 2 5#5": NEVER,
    "@yearly,31 2": MACROS,
}


def refuse(conn: Conn, function: str, **arguments: Any) -> tuple[str, str]:
    """Message and hint of a 22023."""
    with pytest.raises(InvalidParameterValue) as refused:
        call(conn, function, **arguments)
    assert value(conn, "select 1") == 1
    diag = refused.value.diag
    assert diag.message_primary
    assert diag.message_hint
    return diag.message_primary, diag.message_hint


@pytest.fixture
def reading(worker: Conn) -> Conn:
    worker.execute("set default_transaction_read_only = on")
    return worker


@pytest.mark.parametrize(
    ("schedule", "hint"), SCHEDULES.items(), ids=[repr(schedule)[:40] for schedule in SCHEDULES]
)
def test_schedules(reading: Conn, schedule: str, hint: str) -> None:
    message, given = refuse(reading, "window_at", schedule=schedule)
    assert given == hint
    assert message.startswith("schedule ")
    assert value(reading, "select to_json(left(%s, 60))::text", schedule) in message
    instant = datetime(2026, 1, 1, tzinfo=timezone.utc)
    assert refuse(reading, "windows", schedule=schedule, since=instant, until=instant) == (message, given)


def test_messages_name_the_fault(reading: Conn) -> None:
    """One of each place that refuses."""
    for schedule, message in {
        "": "is empty",
        "@reboot": "names no time",
        "0 3 * *": "has 4 fields",
        "*": "has 1 field",
        "0 3 * * " + ",".join(["1"] * 97): "has 201 characters",
        "1,,2 * * * *": "has an empty item in the minute",
        "0 24 * * *": 'has the item "24" in the hour',
        "*/90 * * * *": 'has the step 90 in "*/90"',
        "0 22-2 * * *": 'has the reversed range "22-2"',
        "0 0 31 2 *": "never fires",
        "every x": "names no interval",
        "every -5 minutes": "has a sign",
        "every 1 month": "counts in months or years",
        "every 0.1 seconds": "is shorter than a second",
        "every 367 days": "is longer than 366 days",
        "every 1.5 seconds": "does not make whole seconds",
    }.items():
        assert refuse(reading, "window_at", schedule=schedule)[0].endswith(f'" {message}')


@pytest.mark.parametrize(
    "schedule",
    [
        "0 0 31 2 0",  # not never: every Sunday in February
        "0 0 29 2 *",
        "0 0 29W 2 *",
        "0 0 L-28 2 *",
        "0 0 30 2,3 *",
        "0 0 */31 1 5#1",
        "*/59 * * * *",
        "0 */23 * * *",
        "59/15 0/23 31/31 DEC/12 6/7",
        "00-07/07 00 01 01 00-07/07",
        "0\t3 \t *  *   *",
        "0 0 l,lw,1w * 5l,sun#5",
        "0 0 * * " + ",".join(["1"] * 96),  # 199 characters
        "00 0 * * " + ",".join(["1"] * 96),  # 200
        "every 1 second",
        "every 366 days",
        "every 8784 hours",
        "EVERY\t5  Minutes",
        "every 1.5 minutes",
        "every 01:30:00",
        "every PT15M",
        "@Daily",
    ],
)
def test_what_is_just_allowed(reading: Conn, schedule: str) -> None:
    window = call(reading, "window_at", schedule=schedule)
    assert window["window_start"] < window["window_end"]


@pytest.mark.parametrize(
    "zone",
    [
        "",
        " ",
        "utc",
        "UTC ",
        "Utc",
        "Z",
        "GMT",
        "CET",
        "EST5EDT",
        "EST",
        "Singapore",
        "UTC+3",
        "+03:00",
        "-3",
        "berlin",
        "Berlin",
        "europe/berlin",
        "Europe/berlin",
        "EUROPE/BERLIN",
        "Europe/Berlin2",
        "Europe/Berlin ",
        " Europe/Berlin",
        "Europe/Berlin\n",
        "Europe/",
        "/",
        "Europe/Atlantis",
        "<Europe/Berlin>-7",
        "posix/Europe/Berlin",
        "right/Europe/Berlin",
        "../zoneinfo/Europe/Berlin",
        "/usr/share/zoneinfo/Europe/Berlin",
        "null",
        "localtime",
        "Factory",
        "Europe/Berlin" * 1000,
    ],
)
def test_zones(reading: Conn, zone: str) -> None:
    hint = "Write a name with a slash as it stands there, such as Europe/Berlin, or UTC."
    message, given = refuse(reading, "window_at", schedule="0 3 * * *", timezone=zone)
    assert given == hint
    quoted = value(reading, "select to_json(left(%s, 60))::text", zone)
    assert message == f"timezone {quoted} is not a full name of pg_timezone_names"
    instant = datetime(2026, 1, 1, tzinfo=timezone.utc)
    again = refuse(reading, "windows", schedule="0 3 * * *", timezone=zone, since=instant, until=instant)
    assert again == (message, given)


@pytest.mark.parametrize(
    "zone", ["UTC", None, "Etc/UTC", "Europe/Berlin", "Etc/GMT+5", "America/Argentina/Buenos_Aires"]
)
def test_zones_allowed(reading: Conn, zone: str | None) -> None:
    assert call(reading, "window_at", schedule="0 3 * * *", timezone=zone)["window_end"]


FIRST = datetime(1900, 1, 1, tzinfo=timezone.utc)
AFTER = datetime(9999, 1, 1, tzinfo=timezone.utc)
MICROSECOND = timedelta(microseconds=1)
INSTANTS = [
    "infinity",
    "-infinity",
    FIRST - MICROSECOND,
    AFTER,
    "4713-01-01 00:00:00Z BC",
    "12026-01-01 00:00:00Z",
]


@pytest.mark.parametrize("instant", INSTANTS, ids=str)
def test_instants(reading: Conn, instant: datetime | str) -> None:
    """`at` null is the present; since and until must be given (below)."""
    good = datetime(2026, 1, 1, tzinfo=timezone.utc)
    given = value(reading, "select %s::timestamptz::text", instant)
    for argument, function, others in [
        ("at", "window_at", {}),
        ("since", "windows", {"until": good}),
        ("until", "windows", {"since": good}),
    ]:
        message, hint = refuse(reading, function, schedule="0 3 * * *", **{argument: instant}, **others)
        assert message.startswith(f"{argument} ")
        assert message.endswith(f": {given}")
        assert hint == f"Give {argument} as a timestamptz from the year 1900 to the year 9998."


@pytest.mark.parametrize("schedule", ["0 3 * * *", "0 0 29 2 */7", "every 366 days"])
@pytest.mark.parametrize("instant", [FIRST, AFTER - timedelta(days=60 * 366)], ids=str)
def test_instants_just_allowed(reading: Conn, schedule: str, instant: datetime) -> None:
    window = call(reading, "window_at", schedule=schedule, timezone="Pacific/Kiritimati", at=instant)
    assert window["window_start"] <= instant < window["window_end"]


def test_the_last_instant_allowed(reading: Conn) -> None:
    window = call(
        reading, "window_at", schedule="0 3 * * *", timezone="Europe/Berlin", at=AFTER - MICROSECOND
    )
    assert window["window_start"] == datetime(9998, 12, 31, 2, tzinfo=timezone.utc)
    assert window["window_end"] == datetime(9999, 1, 1, 2, tzinfo=timezone.utc)


def test_what_must_be_given(reading: Conn) -> None:
    instant = datetime(2026, 1, 1, tzinfo=timezone.utc)
    hint = "Give schedule as text: 0 3 * * *, @daily or every 15 minutes."
    null = ("schedule must not be null", hint)
    assert refuse(reading, "window_at", schedule=None) == null
    assert refuse(reading, "windows", schedule=None, since=instant, until=instant) == null
    for argument, other in (("since", "until"), ("until", "since")):
        for left_out in ({}, {argument: None}):
            message, hint = refuse(reading, "windows", schedule="@daily", **{other: instant}, **left_out)
            assert message == f"{argument} must not be null"
            assert hint == f"Give {argument} as a timestamptz from the year 1900 to the year 9998."


def test_since_after_until(reading: Conn) -> None:
    until = datetime(2026, 1, 1, tzinfo=timezone.utc)
    message, hint = refuse(reading, "windows", schedule="@daily", since=until + MICROSECOND, until=until)
    assert message == "until 2026-01-01 00:00:00+00 is before since 2026-01-01 00:00:00.000001+00"
    assert hint == "Give since and until in this order; the windows returned start in between."
