"""One thin function per SQL function, on the caller's connection; none commits.

No rule lives here: arguments are written down, PostgreSQL decides, and the answer becomes a Python value.
"""

from __future__ import annotations

import dataclasses
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

import psycopg
from psycopg.pq import PipelineStatus
from psycopg.rows import tuple_row

from ._claim import Claim
from ._errors import InvalidArgument, translated
from ._json import written
from ._spans import Span, check_kind, interval

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from uuid import UUID

    from ._connection import Conn

_UTC = timezone.utc
_FIELDS = frozenset(field.name for field in dataclasses.fields(Claim))

# PostgreSQL's type of each argument, the same in every function that has it; text where it is not named here.
_TYPES = {
    "at": "timestamptz",
    "counted": "boolean",
    "early": "interval",
    "keep": "interval",
    "max_attempts": "integer",
    "max_hold": "interval",
    "min_hold": "interval",
    "nonce": "uuid",
    "payload": "jsonb",
    "record_denials": "boolean",
    "result": "jsonb",
    "retry_in": "interval",
    "since": "timestamptz",
    "slots": "integer",
    "start_deadline": "interval",
    "token": "bigint",
    "ttl": "interval",
    "until": "timestamptz",
    "window_start": "timestamptz",
}


class Window(NamedTuple):
    """The span [fire time, next fire time); instants are in UTC."""

    window_start: datetime
    window_end: datetime


def claim_window(
    conn: Conn,
    job: str,
    schedule: str | None = None,
    *,
    timezone: str | None = None,
    ttl: Span | None = None,
    owner: str | None = None,
    window_start: datetime | None = None,
    nonce: UUID | str | None = None,
    in_transaction: bool = False,
) -> Claim:
    """Claim the window of ``job`` that is open now, or the one that starts at ``window_start``."""
    _refuse_hidden_transaction(conn, in_transaction)
    return _claim(
        conn,
        "claim_window",
        job=job,
        schedule=schedule,
        timezone=timezone,
        ttl=ttl,
        owner=owner,
        window_start=window_start,
        nonce=nonce,
    )


def claim_key(
    conn: Conn,
    scope: str,
    key: str,
    ttl: Span,
    *,
    owner: str | None = None,
    fingerprint: str | None = None,
    nonce: UUID | str | None = None,
    in_transaction: bool = False,
) -> Claim:
    """Claim an operation; ``fingerprint`` stands for the request, and another is a mismatch."""
    _refuse_hidden_transaction(conn, in_transaction)
    return _claim(
        conn, "claim_key", scope=scope, key=key, ttl=ttl, owner=owner, fingerprint=fingerprint, nonce=nonce
    )


def acquire_lease(
    conn: Conn,
    name: str,
    ttl: Span,
    *,
    owner: str | None = None,
    slots: int | None = None,
    max_hold: Span | None = None,
    min_hold: Span | None = None,
    nonce: UUID | str | None = None,
    in_transaction: bool = False,
) -> Claim:
    """Take a lease, or one of ``slots`` equal ones."""
    _refuse_hidden_transaction(conn, in_transaction)
    return _claim(
        conn,
        "acquire_lease",
        name=name,
        ttl=ttl,
        owner=owner,
        slots=slots,
        max_hold=max_hold,
        min_hold=min_hold,
        nonce=nonce,
    )


def renew_lease(
    conn: Conn, token: int | None, ttl: Span | None = None, *, in_transaction: bool = False
) -> datetime:
    """Extend what the token holds, and return the new ``expires_at``."""
    _refuse_hidden_transaction(conn, in_transaction)
    expires_at: datetime = _value(conn, "renew_lease", token=token, ttl=ttl)
    return expires_at


def release_lease(conn: Conn, token: int | None, *, in_transaction: bool = False) -> bool:
    """Free a lease; false if the token holds nothing."""
    _refuse_hidden_transaction(conn, in_transaction)
    return bool(_value(conn, "release_lease", token=token))


def mark_done(
    conn: Conn,
    token: int | None,
    result: Any = None,
    *,
    keep: Span | None = None,
    in_transaction: bool = False,
) -> bool:
    """Finish the run; ``result`` is anything that can be written as JSON (None: no result)."""
    _refuse_hidden_transaction(conn, in_transaction)
    text = None if result is None else written(result, "result")
    return bool(_value(conn, "mark_done", token=token, result=text, keep=keep))


def mark_failed(
    conn: Conn,
    token: int | None,
    error: str | None = None,
    *,
    retry_in: Span | None = None,
    counted: bool = True,
    in_transaction: bool = False,
) -> bool:
    """Give the run back as failed; it can be claimed again after ``retry_in``.

    Not ``counted``: it was not the work's fault, and the next attempt has the same number.
    """
    _refuse_hidden_transaction(conn, in_transaction)
    return bool(_value(conn, "mark_failed", token=token, error=error, retry_in=retry_in, counted=counted))


def assert_held(conn: Conn, token: int | None, *, in_transaction: bool = False) -> bool:
    """True, or ``NotHeld``; in a transaction nobody can take over before it ends."""
    _refuse_hidden_transaction(conn, in_transaction)
    return bool(_value(conn, "assert_held", token=token))


def define_job(
    conn: Conn,
    job: str,
    schedule: str | None = None,
    *,
    timezone: str | None = None,
    ttl: Span | None = None,
    overlap: str | None = None,
    max_attempts: int | None = None,
    start_deadline: Span | None = None,
    early: Span | None = None,
    max_hold: Span | None = None,
    keep: Span | None = None,
    record_denials: bool | None = None,
    in_transaction: bool = False,
) -> None:
    """Store the settings of a job, or of a scope (without a schedule)."""
    _refuse_hidden_transaction(conn, in_transaction)
    _value(
        conn,
        "define_job",
        job=job,
        schedule=schedule,
        timezone=timezone,
        ttl=ttl,
        overlap=overlap,
        max_attempts=max_attempts,
        start_deadline=start_deadline,
        early=early,
        max_hold=max_hold,
        keep=keep,
        record_denials=record_denials,
    )


def window_at(conn: Conn, schedule: str, timezone: str | None = None, at: datetime | None = None) -> Window:
    """The window that contains ``at`` (default: now)."""
    (window,) = _windows(conn, "window_at", schedule=schedule, timezone=timezone, at=at)
    return window


def windows(
    conn: Conn,
    schedule: str,
    timezone: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
) -> list[Window]:
    """The windows whose fire times lie in [since, until), both of which must be given."""
    return _windows(conn, "windows", schedule=schedule, timezone=timezone, since=since, until=until)


def key_of(conn: Conn, payload: Any, version: str | None = None) -> str:
    """64 hex digits that are the same for the same payload in every client."""
    return str(_value(conn, "key_of", payload=written(payload, "payload"), version=version))


def schema_version(conn: Conn) -> int:
    """The newest revision installed."""
    return int(_value(conn, "schema_version"))


def grant_worker(conn: Conn, role: str, *, in_transaction: bool = False) -> None:
    """Let a role claim, renew and finish."""
    _refuse_hidden_transaction(conn, in_transaction)
    _value(conn, "grant_worker", role=role)


def grant_reader(conn: Conn, role: str, *, in_transaction: bool = False) -> None:
    """Let a role read the views."""
    _refuse_hidden_transaction(conn, in_transaction)
    _value(conn, "grant_reader", role=role)


_MAY_READ = b"select has_table_privilege('pgonce.runs', 'select')"
_LAST_ERROR = b"""
    select error from pgonce.runs
    where name = %s and key = %s and window_start is not distinct from %s::timestamptz
"""


def last_error(conn: Conn, claim: Claim) -> str | None:
    """What the last attempt failed with, for a role that may read the view runs."""
    with psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        if cursor.execute(_MAY_READ, prepare=False).fetchone() != (True,):
            return None
        row = cursor.execute(
            _LAST_ERROR, (claim.name, claim.key, claim.window_start), prepare=False
        ).fetchone()
        return None if row is None or row[0] is None else str(row[0])


_BY_INTENT = "pass in_transaction=True when claim, work and mark_done are one transaction by intent."


def _refuse_hidden_transaction(conn: Conn, in_transaction: bool) -> None:
    """Not committed is not granted: whoever does not say that he knows must not believe the answer."""
    _check_connection(conn)
    if in_transaction:
        return
    if not conn.autocommit:
        raise InvalidArgument(
            "conn: this connection is not autocommit: psycopg opens a transaction by itself, and what you "
            "claim stays invisible to everybody else until you commit",
            hint=f"Connect with autocommit=True; or {_BY_INTENT}",
        )
    if conn.pgconn.pipeline_status != PipelineStatus.OFF:
        raise InvalidArgument(
            "conn: it is in a pipeline: nothing is committed before that syncs, and what you claim stays "
            "invisible to everybody else",
            hint=f"Call it outside of conn.pipeline(); or {_BY_INTENT}",
        )


def _check_connection(conn: Conn) -> None:
    if not isinstance(conn, psycopg.Connection):
        kind = type(conn)
        raise TypeError(f"conn: a psycopg.Connection is needed, not {kind.__module__}.{kind.__qualname__}")
    if conn.info.encoding == "ascii":
        raise InvalidArgument(
            "conn: its client_encoding is SQL_ASCII, in which psycopg gives text back as bytes",
            hint="Connect with client_encoding='UTF8', or set it for this session.",
        )


def _claim(conn: Conn, function: str, **arguments: Any) -> Claim:
    names, (row,) = _call(conn, function, arguments)
    return Claim(**{name: value for name, value in zip(names, row, strict=True) if name in _FIELDS})


def _value(conn: Conn, function: str, **arguments: Any) -> Any:
    _, ((value,),) = _call(conn, function, arguments)
    return value


def _windows(conn: Conn, function: str, **arguments: Any) -> list[Window]:
    _, rows = _call(conn, function, arguments)
    return [Window(*row) for row in rows]


def _call(conn: Conn, function: str, arguments: dict[str, Any]) -> tuple[list[str], list[list[Any]]]:
    """Call the function by named arguments; returns the names of its columns, and its rows.

    Nothing depends on how the caller has set up the connection: every argument is cast, the cursor is
    psycopg's own, nothing is prepared (for PgBouncer), results are binary (DateStyle changes their text).
    """
    _check_connection(conn)
    types = {name: _TYPES.get(name, "text") for name in arguments}
    named = ", ".join(f"{name} => %s::{type_}" for name, type_ in types.items())
    query = f"select * from pgonce.{function}({named})".encode()
    values = [_written(name, types[name], value) for name, value in arguments.items()]
    with _named(arguments, types), translated(), psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
        cursor.execute(query, values, prepare=False, binary=True)
        rows = cursor.fetchall()
        return [column.name for column in cursor.description or ()], [list(map(_in_utc, row)) for row in rows]


@contextmanager
def _named(arguments: dict[str, Any], types: dict[str, str]) -> Iterator[None]:
    """PostgreSQL's word on a text that is no interval does not say which argument it was."""
    try:
        yield
    except InvalidArgument as error:
        for name, value in arguments.items():
            if types[name] == "interval" and error.sqlstate in _NO_INTERVAL and f'"{value}"' in error.message:
                raise InvalidArgument(
                    f'{name}: "{value[:60]}" is not a duration',
                    sqlstate=error.sqlstate,
                    hint='Say "90 seconds", "5 minutes" or "1 hour 30 minutes".',
                ) from error
        raise


_NO_INTERVAL = ("22007", "22008", "22015")  # no such format, no such number, too long


def _written(name: str, type_: str, value: Any) -> Any:
    write = _WRITE.get(type_)
    return value if write is None or value is None else write(name, value)


def _write_instant(name: str, value: Any) -> str:
    if not isinstance(value, datetime):
        raise TypeError(f"{name}: a datetime is needed, not {type(value).__qualname__}")
    if value.utcoffset() is None:
        raise InvalidArgument(
            f"{name}: {value} has no time zone",
            hint="Give it one, such as datetime.now(timezone.utc).",
        )
    return value.astimezone(_UTC).isoformat()


def _write_interval(name: str, value: Any) -> str:
    check_kind(value, name)
    return interval(value)


_WRITE: dict[str, Callable[[str, Any], Any]] = {
    "interval": _write_interval,
    "timestamptz": _write_instant,
    "uuid": lambda _, value: str(value),
}


def _in_utc(value: Any) -> Any:
    return value.astimezone(_UTC) if isinstance(value, datetime) else value
