"""define_job: a job's settings, stored once, checked at once. What each means for a claim: test_claim_window.

The job is "nightly"; it is noon.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import psycopg
import pytest

from tests.functions.holding import NOON, after
from tests.functions.refusals import assert_refused, bad_durations, bad_names, tables
from tests.helpers import Clock, Conn, Row, call, value, wait_for_lock

Connect = Callable[..., Conn]

TEN = "*/10 * * * *"

SETTINGS = {
    "schedule": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "ttl": "10 minutes",
    "overlap": "replace",
    "max_attempts": 5,
    "start_deadline": "1 hour",
    "early": "2 seconds",
    "max_hold": "3 hours",
    "keep": "7 days",
    "record_denials": True,
}

STORED = {
    "schedule": "0 3 * * *",
    "timezone": "Europe/Berlin",
    "ttl": timedelta(minutes=10),
    "overlap": "replace",
    "max_attempts": 5,
    "start_deadline": timedelta(hours=1),
    "early": timedelta(seconds=2),
    "max_hold": timedelta(hours=3),
    "keep": timedelta(days=7),
    "record_denials": True,
}

DEFAULTS = {
    "schedule": None,
    "timezone": None,
    "ttl": None,
    "overlap": "forbid",
    "max_attempts": 3,
    "start_deadline": None,
    "early": timedelta(seconds=1),
    "max_hold": None,
    "keep": timedelta(days=90),
    "record_denials": False,
}


def define(conn: Conn, **settings: Any) -> None:
    call(conn, "define_job", **{"job": "nightly", **settings})


def stored(conn: Conn) -> Row:
    columns = ", ".join(DEFAULTS)
    (row,) = conn.execute(f"select {columns} from pgonce.job where job = 'nightly'").fetchall()
    return row


def beginning(conn: Conn) -> datetime | None:
    instant: datetime | None = value(conn, "select beginning from pgonce.job where job = 'nightly'")
    return instant


def claim(conn: Conn, **arguments: Any) -> Row:
    answer: Row = call(conn, "claim_window", job="nightly", **arguments)
    return answer


# --- What is stored.


def test_all_settings_are_stored(conn: Conn, clock: Clock) -> None:
    define(conn, **SETTINGS)
    assert stored(conn) == STORED


def test_null_means_the_default(conn: Conn, clock: Clock) -> None:
    define(conn)
    assert stored(conn) == DEFAULTS


def test_null_means_the_default_again_but_keeps_schedule_and_zone(conn: Conn, clock: Clock) -> None:
    """Each call says all of it: what it leaves out is back at the default."""
    define(conn, **SETTINGS)
    define(conn)
    assert stored(conn) == {**DEFAULTS, "schedule": "0 3 * * *", "timezone": "Europe/Berlin"}


def test_zero_means_none(conn: Conn, clock: Clock) -> None:
    define(conn, start_deadline="0", max_hold="0", early="0", keep="0")
    assert stored(conn) == {**DEFAULTS, "early": timedelta(0), "keep": timedelta(0)}


def test_a_schedule_without_a_zone_is_in_utc(conn: Conn, clock: Clock) -> None:
    define(conn, schedule=TEN, timezone="Europe/Berlin")
    define(conn, schedule=TEN)
    assert stored(conn)["timezone"] == "UTC"


def test_a_zone_without_a_schedule_changes_the_stored_ones(conn: Conn, clock: Clock) -> None:
    define(conn, schedule="0 3 * * *", timezone="Europe/Berlin")
    define(conn, timezone="Asia/Tokyo")
    assert (stored(conn)["schedule"], stored(conn)["timezone"]) == ("0 3 * * *", "Asia/Tokyo")
    assert claim(conn)["key"] == "2026-05-31T18:00:00Z"


def test_it_is_idempotent(conn: Conn, clock: Clock) -> None:
    define(conn, **SETTINGS)
    claim(conn)
    before = tables(conn)
    for days in (0, 1, 30):
        clock.set(after(days=days))
        define(conn, **SETTINGS)
        assert tables(conn) == before


@pytest.mark.parametrize("overlap", ["forbid", "allow", "replace"])
def test_every_overlap(conn: Conn, clock: Clock, overlap: str) -> None:
    define(conn, overlap=overlap)
    assert stored(conn)["overlap"] == overlap


def test_a_start_deadline_may_be_as_short_as_any_duration(conn: Conn, clock: Clock) -> None:
    """The default of early does not bound it; an early that is given does, see the refusals."""
    define(conn, schedule=TEN, start_deadline="100 milliseconds")
    assert claim(conn)["reason"] == "granted"


@pytest.mark.parametrize("max_attempts", [1, 2**31 - 1])
def test_max_attempts_from_1(conn: Conn, clock: Clock, max_attempts: int) -> None:
    define(conn, max_attempts=max_attempts)
    assert stored(conn)["max_attempts"] == max_attempts


def test_longest_durations(conn: Conn, clock: Clock) -> None:
    longest = dict.fromkeys(("ttl", "start_deadline", "early", "max_hold", "keep"), "366 days")
    define(conn, **longest)
    assert {name: stored(conn)[name] for name in longest} == dict.fromkeys(longest, timedelta(days=366))


def test_a_scope_is_defined_like_a_job(conn: Conn, clock: Clock) -> None:
    """Without a schedule: max_attempts, keep, max_hold and record_denials hold for its operations."""
    define(conn, max_attempts=1, max_hold="1 hour")
    answer = call(conn, "claim_key", scope="nightly", key="a", ttl="1 minute")
    call(conn, "mark_failed", token=answer["token"], retry_in="0")
    assert call(conn, "claim_key", scope="nightly", key="a", ttl="1 minute")["reason"] == "exhausted"
    other = call(conn, "claim_key", scope="nightly", key="b", ttl="2 hours")
    assert (other["reason"], other["expires_at"]) == ("granted", after(hours=1))


def test_names_up_to_the_limit(conn: Conn, clock: Clock) -> None:
    for job in ("a" * 200, "é" * 100, "日本 %s :x $$ '\" \\"):
        call(conn, "define_job", job=job, schedule=TEN)
        assert call(conn, "claim_window", job=job)["name"] == job


# --- When it holds.


def test_it_holds_for_runs_on_record_too(conn: Conn, clock: Clock) -> None:
    answer = claim(conn, schedule="@daily", ttl="1 minute")
    clock.advance(minutes=1)
    define(conn, max_attempts=1)
    assert claim(conn)["reason"] == "exhausted"
    define(conn, max_attempts=2)
    again = claim(conn)
    assert (again["reason"], again["attempt"]) == ("granted", 2)
    assert again["token"] > answer["token"]


def test_a_running_run_goes_on(conn: Conn, clock: Clock) -> None:
    """Its max_hold, its keep and its window are those of its grant."""
    define(conn, schedule="@daily", max_hold="1 hour", keep="1 day")
    token = claim(conn, ttl="10 minutes")["token"]
    clock.advance(minutes=5)
    define(conn, schedule="@hourly", max_hold="1 minute", keep="2 days")
    assert call(conn, "renew_lease", token=token, ttl="55 minutes") == after(hours=1)
    assert claim(conn)["reason"] == "overlap"
    call(conn, "mark_done", token=token)
    assert value(conn, "select keep_until from pgonce.run") == after(days=1, minutes=5)
    assert claim(conn)["key"] == "2026-06-01T12:00:00Z"


# --- The beginning.


def test_it_begins_with_the_window_now_open(conn: Conn, clock: Clock) -> None:
    clock.set(after(minutes=7))
    define(conn, schedule=TEN)
    assert beginning(conn) == NOON


def test_without_a_schedule_nothing_begins(conn: Conn, clock: Clock) -> None:
    """A scope; given a schedule later, it begins then; given by a claim, with the first grant."""
    define(conn)
    assert beginning(conn) is None
    clock.advance(days=1)
    define(conn, schedule="@daily")
    assert beginning(conn) == after(hours=12)
    call(conn, "define_job", job="other")
    assert call(conn, "claim_window", job="other", schedule=TEN, window_start=NOON)["reason"] == "granted"


@pytest.mark.parametrize("change", [{"schedule": "*/5 * * * *"}, {"schedule": TEN, "timezone": "Asia/Tokyo"}])
def test_a_change_moves_it_to_the_window_then_open(conn: Conn, clock: Clock, change: Row) -> None:
    define(conn, schedule=TEN)
    clock.set(after(minutes=25))
    define(conn, **change)
    assert beginning(conn) == after(minutes=25 if "timezone" not in change else 20)


def test_no_change_leaves_it(conn: Conn, clock: Clock) -> None:
    define(conn, schedule=TEN)
    clock.set(after(minutes=25))
    define(conn, schedule=TEN, timezone="UTC", ttl="1 minute")
    define(conn, ttl="2 minutes")
    define(conn, timezone="UTC")
    assert beginning(conn) == NOON


def test_never_backwards(conn: Conn, clock: Clock) -> None:
    clock.set(after(minutes=25))
    define(conn, schedule="*/5 * * * *")
    define(conn, schedule="@hourly")
    assert beginning(conn) == after(minutes=25)
    clock.set(after(minutes=-60))
    define(conn, schedule="@daily")
    assert beginning(conn) == after(minutes=25)


def test_a_defined_beginning_is_not_moved_by_a_backfill(conn: Conn, clock: Clock) -> None:
    define(conn, schedule=TEN)
    assert claim(conn, window_start=after(minutes=-10))["reason"] == "skipped"
    assert beginning(conn) == NOON


def test_a_change_after_first_grants_ends_their_backfill(conn: Conn, clock: Clock) -> None:
    call(conn, "mark_done", token=claim(conn, schedule=TEN)["token"])
    clock.set(after(minutes=25))
    define(conn, schedule="*/5 * * * *")
    assert claim(conn, window_start=after(minutes=20))["reason"] == "skipped"


# --- An open claim.


def test_it_waits_for_an_open_claim_but_not_for_ever(conn: Conn, connect: Connect, clock: Clock) -> None:
    """10 seconds, shortened here by the owner, so that nothing sleeps."""
    assert value(conn, "select 'lock_timeout=10s' = any(proconfig) from pg_proc where proname = 'define_job'")
    conn.execute("alter function pgonce.define_job set lock_timeout = '1ms'")
    for _ in ("a new job", "a known one"):
        claiming = connect(autocommit=False)
        assert claim(claiming, schedule=TEN)["reason"] == "granted"
        with pytest.raises(psycopg.errors.LockNotAvailable) as raised:
            define(conn, schedule=TEN)
        assert "nightly" in (raised.value.diag.message_primary or "")
        assert raised.value.diag.message_hint
        claiming.commit()
        define(conn, schedule=TEN)
        clock.advance(minutes=10)
        define(conn, schedule=TEN, ttl="1 minute")  # for the next round it is a change again


def row_versions(conn: Conn) -> list[Row]:
    return conn.execute("select ctid::text as ctid, xmin::text as xmin from pgonce.job").fetchall()


@pytest.mark.parametrize("kind", ["job", "scope"])
def test_an_unchanged_definition_only_reads(conn: Conn, connect: Connect, clock: Clock, kind: str) -> None:
    """Case 73: a migration that stays open for minutes after it; with claims before and beside it.

    Seen to fail: the job's row was locked and rewritten, and its claims were busy.
    """
    settings: Row = {**SETTINGS, "schedule": TEN} if kind == "job" else {"max_attempts": 5}
    settings["ttl"] = "60 seconds"
    define(conn, **settings)
    if kind == "job":
        call(conn, "mark_done", token=claim(conn, schedule=None)["token"])
    before = row_versions(conn)
    migration = connect(autocommit=False)
    define(migration, **settings)
    define(migration, **{**settings, "ttl": "1 minute"})  # the same span
    assert row_versions(conn) == before
    assert value(migration, "select pg_current_xact_id_if_assigned()") is None
    modes = migration.execute(
        "select mode from pg_locks where pid = pg_backend_pid() and relation is not null"
    )
    assert {row["mode"] for row in modes} == {"AccessShareLock"}
    clock.advance(minutes=10)
    if kind == "job":
        assert claim(connect(), schedule=None)["reason"] == "granted"
    else:
        assert call(connect(), "claim_key", scope="nightly", key="k", ttl="1 minute")["reason"] == "granted"
    define(connect(), **{**settings, "max_attempts": 9})  # nor does it stand in the way of a changed one
    migration.rollback()


def test_an_unchanged_definition_on_a_read_only_server(conn: Conn, clock: Clock) -> None:
    define(conn, **SETTINGS)
    conn.execute("set default_transaction_read_only = on")
    define(conn, **SETTINGS)
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        define(conn, **{**SETTINGS, "max_attempts": 9})


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("other", [5, 6])
def test_two_definitions_at_once(
    conn: Conn, connect: Connect, clock: Clock, *, known: bool, other: int
) -> None:
    """The second waits for the first, and then decides again what it changes: the last one holds."""
    if known:
        define(conn, schedule=TEN)
    first, second = connect(autocommit=False), connect()
    define(first, schedule=TEN, max_attempts=5, ttl="1 minute")
    with ThreadPoolExecutor() as pool:
        late = pool.submit(define, second, schedule=TEN, max_attempts=other, ttl="1 minute")
        wait_for_lock(conn, second.info.backend_pid)
        first.commit()
        late.result()
    assert value(conn, "select max_attempts from pgonce.job") == other
    assert value(conn, "select beginning from pgonce.job") == NOON


def test_only_the_owner_defines(connect: Connect, clock: Clock) -> None:
    for role in ("worker", "reader", "stranger"):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            define(connect(role))


# --- Bad input.


@pytest.mark.parametrize("known", [False, True])
def test_refusals(conn: Conn, clock: Clock, *, known: bool) -> None:
    if known:
        define(conn, **SETTINGS)
    assert_refused(
        conn,
        "define_job",
        {"job": "nightly", **SETTINGS},
        [
            *bad_names("job"),
            *bad_durations(conn, "ttl", zero=False),
            *bad_durations(conn, "start_deadline", zero=True),
            *bad_durations(conn, "early", zero=True),
            *bad_durations(conn, "max_hold", zero=True),
            *bad_durations(conn, "keep", zero=True),
            ("schedule", "", 'schedule ""', ""),
            ("schedule", "nonsense", 'schedule "nonsense"', ""),
            ("schedule", "* * * * * *", 'schedule "* * * * * *"', ""),
            ("schedule", "60 * * * *", 'schedule "60 * * * *"', ""),
            ("schedule", "@reboot", 'schedule "@reboot"', ""),
            ("schedule", "0 0 30 2 *", 'schedule "0 0 30 2 *"', ""),
            ("schedule", "* * * * *" + " " * 200, 'schedule "* * * * *', ""),
            ("schedule", "every 1 month", 'schedule "every 1 month"', ""),
            ("schedule", "every 0 seconds", 'schedule "every 0 seconds"', ""),
            ("timezone", "", 'timezone ""', "Europe/Berlin"),
            ("timezone", "CET", 'timezone "CET"', "Europe/Berlin"),
            ("timezone", "Europe/Berlin2", 'timezone "Europe/Berlin2"', "Europe/Berlin"),
            ("timezone", "europe/berlin", 'timezone "europe/berlin"', "Europe/Berlin"),
            ("timezone", "right/Europe/Berlin", 'timezone "right/Europe/Berlin"', "Europe/Berlin"),
            ("timezone", "E" * 300, 'timezone "EEE', "Europe/Berlin"),
            ("overlap", "", 'overlap is not known: ""', "forbid, allow or replace"),
            ("overlap", "Forbid", 'overlap is not known: "Forbid"', "forbid, allow or replace"),
            ("overlap", "x" * 300, 'overlap is not known: "xxx', "forbid, allow or replace"),
            ("max_attempts", 0, "max_attempts is out of range: 0", "from 1"),
            ("max_attempts", -1, "max_attempts is out of range: -1", "from 1"),
            ("ttl", "181 minutes", "ttl 03:01:00 is above max_hold 03:00:00", "at most max_hold"),
            ("early", "2 hours", "start_deadline 01:00:00 is shorter than early 02:00:00", "at least early"),
            ("max_hold", "9 minutes", "ttl 00:10:00 is above max_hold 00:09:00", "at most max_hold"),
        ],
    )


def test_a_zone_needs_a_schedule(conn: Conn, clock: Clock) -> None:
    valid = {"job": "nightly", "schedule": TEN, "timezone": "Asia/Tokyo"}
    cases = [("schedule", None, 'timezone "Asia/Tokyo" is given, but no schedule', "Give the schedule")]
    assert_refused(conn, "define_job", valid, cases)
