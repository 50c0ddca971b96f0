"""A duration means to the client what it means to PostgreSQL; whatever might not is refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import psycopg
import pytest
from psycopg.rows import dict_row

import pgonce
from pgonce._spans import interval, span
from tests.conftest import SharedServer
from tests.helpers import Conn, value


@pytest.fixture(scope="module")
def session(pg_server: SharedServer) -> Iterator[Conn]:
    with psycopg.connect(pg_server.dsn(), autocommit=True, row_factory=dict_row) as conn:
        yield conn


@pytest.mark.parametrize(
    "text",
    [
        "30s", "30 s", "30", "1.5", "90 seconds", "5m", "5 min", "5 minutes", "1h 30m", "1h30m", "2 hours",
        "1 day", "1d 12h", "2 weeks", "250ms", "250 milliseconds", "00:05", "00:05:00", "1:02:03.5",
        " 7 sec ", "1 HOUR", "0",
    ],
)  # fmt: skip
def test_it_reads_as_postgresql_does(session: Conn, text: str) -> None:
    seconds = value(session, "select extract(epoch from %s::interval)::float8", text)
    assert span(text, "ttl").total_seconds() == seconds


@pytest.mark.parametrize(
    "text",
    ["", " ", "soon", "5 minuets", "1 month", "1 year", "-5s", "1h -5m", "5 5 5x", "1e3", "٣s", "P1D", "1:75",
     "inf", "infinity", "99999999999 days"],
)  # fmt: skip
def test_it_refuses_with_a_hint(text: str) -> None:
    with pytest.raises(pgonce.InvalidArgument, match="ttl") as refused:
        span(text, "ttl")
    assert refused.value.hint is not None
    assert "90s" in refused.value.hint


@pytest.mark.parametrize("style", ["postgres", "postgres_verbose", "sql_standard", "iso_8601"])
@pytest.mark.parametrize(
    "length",
    [timedelta(0), timedelta(milliseconds=100), timedelta(days=366), timedelta(2, 3, 7),
     timedelta(seconds=-90), timedelta(days=-1, microseconds=1)],
)  # fmt: skip
def test_a_timedelta_arrives_as_it_is(session: Conn, style: str, length: timedelta) -> None:
    session.execute(f"set intervalstyle = {style}")
    arrived = value(session, "select extract(epoch from %s::interval)::numeric", interval(length))
    assert float(arrived) == length.total_seconds()
