"""The thin functions: they say what the SQL functions say, on any connection, and commit nothing."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import class_row, dict_row, namedtuple_row, scalar_row

import pgonce
from tests.helpers import Conn, call, value

AT = datetime(2026, 3, 1, 12, 34, 56, tzinfo=timezone.utc)
YEAR = datetime(2026, 1, 1, tzinfo=timezone.utc)


def running(conn: Conn) -> int:
    """How many runs are running, as everybody sees it."""
    return int(value(conn, "select count(*) from pgonce.runs where state = 'running'"))


def test_a_window_from_claim_to_done(conn: Conn) -> None:
    claim = pgonce.claim_window(
        conn, "nightly", "@yearly", timezone="Europe/Berlin", ttl="5 minutes", owner="me"
    )
    assert claim
    assert (claim.reason, claim.name, claim.attempt, claim.owner) == ("granted", "nightly", 1, "me")
    assert claim.window_start is not None
    assert claim.key == claim.window_start.strftime("%Y-%m-%dT%H:%M:%SZ")
    assert pgonce.assert_held(conn, claim.token)
    renewed = pgonce.renew_lease(conn, claim.token, timedelta(minutes=10))
    assert claim.expires_at is not None
    assert renewed > claim.expires_at
    assert pgonce.mark_done(conn, claim.token, {"rows": 7}, keep="1 day")

    again = pgonce.claim_window(conn, "nightly", ttl=timedelta(minutes=5), window_start=claim.window_start)
    assert not again
    assert (again.reason, again.token, again.result) == ("done", None, {"rows": 7})


def test_an_operation_that_fails_and_comes_again(conn: Conn) -> None:
    first = pgonce.claim_key(conn, "invoices", "4711", "1 minute", fingerprint="f")
    assert pgonce.mark_failed(conn, first.token, "paper jam", retry_in=timedelta(0))
    assert value(conn, "select error from pgonce.runs") == "paper jam"
    second = pgonce.claim_key(conn, "invoices", "4711", "1 minute", fingerprint="f")
    assert second.attempt == 2
    assert second.token is not None
    assert first.token is not None
    assert second.token > first.token


def test_a_lease_and_its_slots(conn: Conn) -> None:
    claims = [pgonce.acquire_lease(conn, "pool", "30s", slots=2, max_hold="1 hour") for _ in range(3)]
    assert [claim.reason for claim in claims] == ["granted", "granted", "held"]
    assert {claim.key for claim in claims[:2]} == {"1", "2"}
    assert pgonce.release_lease(conn, claims[0].token) is True
    assert pgonce.release_lease(conn, claims[0].token) is False


def test_the_same_nonce_brings_the_same_grant(conn: Conn) -> None:
    nonce = uuid4()
    first = pgonce.acquire_lease(conn, "x", "30s", nonce=nonce)
    assert pgonce.acquire_lease(conn, "x", "30s", nonce=str(nonce)).token == first.token
    assert pgonce.acquire_lease(conn, "x", "30s", nonce=uuid4()).reason == "held"


def test_a_defined_job(conn: Conn) -> None:
    pgonce.define_job(
        conn, "report", "@yearly", timezone="UTC", ttl="1 minute", overlap="allow", max_attempts=5,
        start_deadline="366 days", early="2s", max_hold="8 minutes", keep="30 days", record_denials=False,
    )  # fmt: skip
    assert pgonce.claim_window(conn, "report")


def test_schedules(conn: Conn) -> None:
    window = pgonce.window_at(conn, "@yearly", "UTC", AT)
    assert window.window_start == YEAR
    assert window.window_end == datetime(2027, 1, 1, tzinfo=timezone.utc)
    assert pgonce.window_at(conn, "@yearly", at=AT.astimezone(timezone(timedelta(hours=9)))) == window
    assert pgonce.windows(conn, "@yearly", since=YEAR, until=AT) == [window]
    assert pgonce.windows(conn, "@yearly", since=AT, until=AT) == []


def test_a_key_is_the_same_for_the_same_payload(conn: Conn) -> None:
    one = pgonce.key_of(conn, {"a": 1, "b": [None, "x"]}, version="2")
    assert one == pgonce.key_of(conn, {"b": [None, "x"], "a": 1.0}, version="2")
    assert one != pgonce.key_of(conn, {"a": 1, "b": [None, "x"]})
    assert len(pgonce.key_of(conn, None)) == 64


def test_grants_to_roles(conn: Conn, connect: Callable[..., Conn]) -> None:
    stranger = connect("stranger")
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        pgonce.acquire_lease(stranger, "x", "30s")
    pgonce.grant_worker(conn, "stranger")
    pgonce.grant_reader(conn, "stranger")
    assert pgonce.acquire_lease(stranger, "x", "30s")
    assert running(stranger) == 0
    assert pgonce.schema_version(stranger) >= 1


@pytest.mark.parametrize("result", [{"a": [1, 2.5, None, "ä"]}, [], "text", 0, False, ""])
def test_a_result_comes_back_as_it_was(conn: Conn, result: Any) -> None:
    pgonce.mark_done(conn, pgonce.claim_key(conn, "s", "k", "30s").token, result)
    assert pgonce.claim_key(conn, "s", "k", "30s").result == result


def test_a_claim_is_a_value(conn: Conn) -> None:
    claim = pgonce.acquire_lease(conn, "x", "30s")
    assert claim.expires_at is not None
    assert claim.expires_at.tzinfo is timezone.utc
    with pytest.raises(dataclasses.FrozenInstanceError):
        claim.token = 1  # type: ignore[misc]
    row = call(conn, "acquire_lease", name="x", ttl="30s")
    assert [field.name for field in dataclasses.fields(claim)] == list(row)


# -- errors ----------------------------------------------------------------------------------------


def test_a_token_that_holds_nothing(conn: Conn) -> None:
    for call_with in (pgonce.renew_lease, pgonce.assert_held, pgonce.mark_done, pgonce.mark_failed):
        for token in (1, None):
            with pytest.raises(pgonce.NotHeld, match="holds nothing") as not_held:
                call_with(conn, token)
            assert not_held.value.sqlstate == "ON001"
            assert not_held.value.hint is not None
            assert isinstance(not_held.value.__cause__, psycopg.Error)


def test_another_request_under_the_same_key(conn: Conn) -> None:
    pgonce.claim_key(conn, "s", "k", "30s", fingerprint="a")
    with pytest.raises(pgonce.FingerprintMismatch):
        pgonce.claim_key(conn, "s", "k", "30s", fingerprint="b")


def test_a_hold_has_its_limit(conn: Conn) -> None:
    lease = pgonce.acquire_lease(conn, "x", "30s", max_hold="30s")
    with pytest.raises(pgonce.HoldLimit):
        pgonce.renew_lease(conn, lease.token)


@pytest.mark.parametrize(
    ("name", "ttl"),
    [
        ("", "30s"),
        ("a\0b", "30s"),
        ("x", "1 month"),
        ("x", "soon"),
        ("x", timedelta(seconds=-1)),
        ("x", "99999999999999 days"),
    ],
)
def test_a_bad_argument(conn: Conn, name: str, ttl: str | timedelta) -> None:
    """PostgreSQL's own refusal of a text that is no interval (22007) counts as well as pgonce's (22023)."""
    with pytest.raises(pgonce.InvalidArgument) as refused:
        pgonce.acquire_lease(conn, name, ttl)
    assert isinstance(refused.value, ValueError)


def test_a_result_that_postgresql_cannot_store(conn: Conn) -> None:
    operation = pgonce.claim_key(conn, "s", "k", "30s")
    for result in (float("nan"), "\0"):
        with pytest.raises(pgonce.InvalidArgument):
            pgonce.mark_done(conn, operation.token, result)


def test_a_read_only_server(connect: Callable[..., Conn]) -> None:
    reading = connect(options="-c default_transaction_read_only=on")
    with pytest.raises(pgonce.ReadOnlyServer, match="read-only") as refused:
        pgonce.acquire_lease(reading, "x", "30s")
    assert "target_session_attrs" in str(refused.value)


def test_a_database_without_pgonce(empty_dsn: str) -> None:
    with psycopg.connect(empty_dsn, autocommit=True) as conn:
        with pytest.raises(pgonce.NotInstalled, match="pgonce migrate"):
            pgonce.acquire_lease(conn, "x", "30s")
        conn.execute("create schema pgonce")  # too old, so to speak
        with pytest.raises(pgonce.NotInstalled):
            pgonce.acquire_lease(conn, "x", "30s")


def test_other_errors_stay_what_they_are(conn: Conn, connect: Callable[..., Conn]) -> None:
    """40001, for one, is the caller's to repeat."""
    one, other = (connect(autocommit=False) for _ in range(2))
    for session in (one, other):
        session.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        running(session)  # a snapshot
    pgonce.claim_key(one, "s", "k", "30s", in_transaction=True)
    one.commit()
    with pytest.raises(psycopg.errors.SerializationFailure):
        pgonce.claim_key(other, "s", "k", "30s", in_transaction=True)
    other.rollback()


@pytest.mark.parametrize(
    "error",
    [
        pgonce.Denied(
            pgonce.Claim(claimed=False, reason="held", name="x", key="1", owner="you", expires_at=AT)
        ),
        pgonce.NotHeld("gone", sqlstate="ON001", detail="d", hint="h"),
    ],
)
def test_errors_survive_the_way_to_another_process(error: pgonce.Error) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


# -- whatever the connection is like ---------------------------------------------------------------


@pytest.mark.parametrize("factory", [dict_row, namedtuple_row, scalar_row, class_row(pgonce.Claim)])
def test_the_row_factory_does_not_matter(conn: Conn, factory: Any) -> None:
    conn.row_factory = factory
    assert pgonce.acquire_lease(conn, "x", "30s").name == "x"
    assert pgonce.window_at(conn, "@yearly", at=AT).window_start == YEAR


@pytest.mark.parametrize("factory", [psycopg.ClientCursor, psycopg.RawCursor])
def test_the_cursor_factory_does_not_matter(conn: Conn, factory: Any) -> None:
    conn.cursor_factory = factory
    assert pgonce.acquire_lease(conn, "x", "30s").name == "x"


def test_the_session_settings_do_not_matter(conn: Conn) -> None:
    """Seen to fail with results as text: psycopg cannot read a timestamptz in DateStyle German."""
    expected = pgonce.claim_window(conn, "job", "@yearly", ttl=timedelta(minutes=5, microseconds=1))
    conn.execute("set timezone = 'Asia/Kolkata'; set datestyle = german; set intervalstyle = sql_standard")
    conn.execute("set search_path = ''")
    window = pgonce.window_at(conn, "@yearly", at=AT)
    assert window.window_start == YEAR
    assert window.window_start.tzinfo is timezone.utc
    claim = pgonce.claim_window(conn, "job", "@yearly", ttl=timedelta(minutes=5, microseconds=1))
    assert claim.reason == "held"
    assert claim.key == expected.key
    assert claim.expires_at == expected.expires_at


def test_nothing_is_ever_prepared(connect: Callable[..., Conn]) -> None:
    """PgBouncer would give the prepared statement to one server and its execution to another.

    Seen to fail without prepare=False, here by the statement in pg_prepared_statements.
    """
    conn = connect()
    conn.prepare_threshold = 0
    lease = pgonce.acquire_lease(conn, "x", "30s")
    for _ in range(10):
        pgonce.renew_lease(conn, lease.token)
    conn.prepare_threshold = None
    assert value(conn, "select count(*) from pg_prepared_statements") == 0


def test_in_a_pipeline(conn: Conn) -> None:
    with conn.pipeline():
        lease = pgonce.acquire_lease(conn, "x", "30s", in_transaction=True)
        pgonce.renew_lease(conn, lease.token, in_transaction=True)
        assert pgonce.key_of(conn, 1)
        with pytest.raises(pgonce.NotHeld):
            pgonce.renew_lease(conn, 1, in_transaction=True)


def test_what_is_no_psycopg_connection_is_refused() -> None:
    with pytest.raises(TypeError, match=r"psycopg\.Connection is needed, not builtins\.str"):
        pgonce.acquire_lease("dbname=x", "x", "30s")  # type: ignore[arg-type]


@pytest.mark.parametrize("instant", [datetime(2026, 3, 1), datetime.min])  # noqa: DTZ001, DTZ901
def test_a_naive_datetime_is_refused(conn: Conn, instant: datetime) -> None:
    with pytest.raises(pgonce.InvalidArgument, match=r"window_start: .* has no time zone"):
        pgonce.claim_window(conn, "x", "@yearly", window_start=instant)
    for since, until in ((instant, AT), (AT, instant)):
        with pytest.raises(pgonce.InvalidArgument, match="has no time zone"):
            pgonce.windows(conn, "@yearly", since=since, until=until)
    with pytest.raises(TypeError, match="at: a datetime is needed, not str"):
        pgonce.window_at(conn, "@yearly", at="2026-03-01T00:00Z")  # type: ignore[arg-type]


# -- transactions ----------------------------------------------------------------------------------

CHANGES: dict[str, Callable[..., Any]] = {
    "acquire_lease": lambda conn, **kw: pgonce.acquire_lease(conn, "x", "30s", **kw),
    "assert_held": lambda conn, **kw: pgonce.assert_held(conn, None, **kw),
    "claim_key": lambda conn, **kw: pgonce.claim_key(conn, "s", "k", "30s", **kw),
    "claim_window": lambda conn, **kw: pgonce.claim_window(conn, "x", "@yearly", **kw),
    "define_job": lambda conn, **kw: pgonce.define_job(conn, "x", "@yearly", **kw),
    "grant_reader": lambda conn, **kw: pgonce.grant_reader(conn, "stranger", **kw),
    "grant_worker": lambda conn, **kw: pgonce.grant_worker(conn, "stranger", **kw),
    "mark_done": lambda conn, **kw: pgonce.mark_done(conn, None, **kw),
    "mark_failed": lambda conn, **kw: pgonce.mark_failed(conn, None, **kw),
    "release_lease": lambda conn, **kw: pgonce.release_lease(conn, None, **kw),
    "renew_lease": lambda conn, **kw: pgonce.renew_lease(conn, None, **kw),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_hidden_transaction_is_refused(connect: Callable[..., Conn], name: str) -> None:
    """CASES 53: psycopg's default connection; claim, then e-mails for ten minutes, no commit."""
    conn = connect(autocommit=False)
    with pytest.raises(pgonce.InvalidArgument, match=r"not autocommit.*invisible") as refused:
        CHANGES[name](conn)
    assert "in_transaction=True" in str(refused.value)
    assert conn.info.transaction_status.name == "IDLE"  # nothing was sent

    with suppress(pgonce.NotHeld):
        CHANGES[name](conn, in_transaction=True)
    assert conn.info.transaction_status.name in {"INTRANS", "INERROR"}  # and nothing committed


@pytest.mark.parametrize("name", CHANGES)
def test_a_pipeline_is_refused(conn: Conn, connect: Callable[..., Conn], name: str) -> None:
    """Case 65: nothing is committed there. Seen to fail: a grant that nobody else saw, and then was gone."""
    session = connect()
    with session.pipeline(), pytest.raises(pgonce.InvalidArgument, match=r"pipeline.*invisible") as refused:
        CHANGES[name](session)
    assert "in_transaction=True" in str(refused.value)
    for table in ("job", "run", "lease"):
        assert value(conn, f"select count(*) from pgonce.{table}") == 0
    with suppress(pgonce.NotHeld), session.pipeline():
        CHANGES[name](session, in_transaction=True)


@pytest.mark.parametrize("name", CHANGES)
def test_a_two_phase_transaction_is_refused(connect: Callable[..., Conn], name: str) -> None:
    """psycopg has them on connections that are not autocommit only."""
    conn = connect(autocommit=False)
    conn.tpc_begin("pgonce test")
    with pytest.raises(pgonce.InvalidArgument, match="not autocommit"):
        CHANGES[name](conn)
    conn.tpc_rollback()


@pytest.mark.parametrize("name", CHANGES)
def test_an_aborted_transaction_answers_nothing(conn: Conn, name: str) -> None:
    def claim() -> None:
        with conn.transaction():
            with suppress(psycopg.errors.DivisionByZero):
                conn.execute("select 1/0")
            CHANGES[name](conn)

    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        claim()


def test_a_connection_that_gives_bytes_is_refused(connect: Callable[..., Conn]) -> None:
    """Case 64. Seen to fail: the reason of a claim was b'granted'."""
    conn = connect(client_encoding="SQL_ASCII")
    for call_with in (*CHANGES.values(), pgonce.schema_version):
        with pytest.raises(pgonce.InvalidArgument, match=r"SQL_ASCII.*bytes") as refused:
            call_with(conn)
        assert "client_encoding='UTF8'" in str(refused.value)
    conn.execute("set client_encoding to LATIN1")
    assert pgonce.acquire_lease(conn, "é", "30s").name == "é"


def test_every_function_is_either_here_or_harmless() -> None:
    harmless = {"key_of", "schema_version", "window_at", "windows"}
    blocks = {"every", "exclusive", "lease", "operation", "window"}
    functions = {name for name in pgonce.__all__ if not isinstance(getattr(pgonce, name), type)}
    assert functions == set(CHANGES) | harmless | blocks


def test_a_harmless_function_may_be_called_in_any_transaction(connect: Callable[..., Conn]) -> None:
    conn = connect(autocommit=False)
    assert pgonce.window_at(conn, "@yearly", at=AT).window_start == YEAR
    assert pgonce.key_of(conn, 1)


@pytest.mark.parametrize("commit", [True, False])
def test_claim_work_and_mark_done_in_one_transaction(
    conn: Conn, connect: Callable[..., Conn], commit: bool
) -> None:
    conn.execute("create table work (n integer)")
    session = connect(autocommit=False)
    claim = pgonce.claim_key(session, "s", "k", "1 minute", in_transaction=True)
    session.execute("insert into work values (1)")
    pgonce.mark_done(session, claim.token, in_transaction=True)
    assert value(conn, "select count(*) from pgonce.runs") == 0
    session.commit() if commit else session.rollback()
    assert value(conn, "select count(*) from work") == int(commit)
    assert pgonce.claim_key(conn, "s", "k", "1 minute").reason == ("done" if commit else "granted")


def test_a_block_of_psycopg_is_a_transaction_by_intent(conn: Conn) -> None:
    with conn.transaction(force_rollback=True):
        assert pgonce.claim_key(conn, "s", "k", "1 minute")
    assert pgonce.claim_key(conn, "s", "k", "1 minute")
