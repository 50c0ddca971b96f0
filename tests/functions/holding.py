"""One way to ask for a lease, an operation and a window, for what is true of all three."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from typing import Any

import psycopg

from tests.helpers import Conn, Row, call, value

NOON = datetime(2026, 6, 1, 12, tzinfo=timezone.utc)
KINDS = ("lease", "operation", "window")
NEVER_GRANTED = (None, 0, -1, 1, 2**53, 2**63 - 1)  # tokens


def after(**duration: float) -> datetime:
    """So long after noon; takes what ``timedelta`` takes."""
    return NOON + timedelta(**duration)


def hold(
    conn: Conn, kind: str, *, ttl: str = "10 minutes", max_hold: str | None = None, **arguments: Any
) -> Row:
    """Ask for the thing of that kind; again from elsewhere after its end: a takeover."""
    claim: Row
    if kind == "lease":
        claim = call(conn, "acquire_lease", name="thing", ttl=ttl, max_hold=max_hold, **arguments)
    else:
        schedule = "@daily" if kind == "window" else None
        if max_hold is not None:
            call(conn, "define_job", job="thing", schedule=schedule, max_hold=max_hold)
        if kind == "window":
            claim = call(conn, "claim_window", job="thing", schedule=schedule, ttl=ttl, **arguments)
        else:
            claim = call(conn, "claim_key", scope="thing", key="key", ttl=ttl, **arguments)
    return claim


def granted(conn: Conn, kind: str, **arguments: Any) -> Row:
    """The same when the answer can only be a grant."""
    claim = hold(conn, kind, **arguments)
    assert claim["reason"] == "granted", claim
    return claim


def expires_at(conn: Conn, token: int) -> datetime:
    """Until when the token's holder is safe, as it is stored."""
    instant: datetime = value(
        conn,
        "select expires_at from (select token, expires_at from pgonce.runs"
        " union all select token, expires_at from pgonce.leases) held where token = %s",
        token,
    )
    return instant


def run(conn: Conn, name: str, key: str) -> Row:
    """The record of a window or an operation, as the view shows it."""
    (row,) = conn.execute("select * from pgonce.runs where name = %s and key = %s", (name, key)).fetchall()
    return row


def sqlstate(conn: Conn, function: str, /, **arguments: Any) -> str | None:
    """The error that the call ends in; None: none."""
    try:
        call(conn, function, **arguments)
    except psycopg.Error as error:
        return error.sqlstate
    return None
