"""Which database: what ``--dsn``, ``PGONCE_DSN`` or ``embedded`` mean."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg
from psycopg.conninfo import conninfo_to_dict

from .. import schema
from ._exit import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

EMBEDDED = "embedded"


@contextmanager
def open_dsn(text: str) -> Iterator[str]:
    """A connection string; for ``embedded`` that of a private server with the schema installed."""
    if text != EMBEDDED:
        _refuse_malformed(text)
        yield text
        return
    from .._embedded import Server

    with Server() as server:
        with psycopg.connect(server.dsn(), autocommit=True, client_encoding="UTF8") as conn:
            conn.execute(schema.sql().encode())
        yield server.dsn()


def _refuse_malformed(dsn: str) -> None:
    """Without repeating any of it: what libpq complains about may be a piece of the password."""
    advice = "it should be like postgresql://user@host/dbname, with special characters percent-encoded"
    try:
        settings = conninfo_to_dict(dsn)
    except psycopg.ProgrammingError:
        raise UsageError(f"the connection string is malformed: {advice}") from None
    ports = str(settings.get("port") or "0").split(",")
    if "@" in str(settings.get("host") or "") or not all(port.isdecimal() or not port for port in ports):
        raise UsageError(f"host or port in the connection string are malformed: {advice}")
