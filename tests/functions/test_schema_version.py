"""schema_version: the newest revision installed."""

from __future__ import annotations

from collections.abc import Callable

from pgonce import schema
from tests.helpers import Conn, call

Connect = Callable[..., Conn]


def test_it_is_the_newest_revision(conn: Conn, connect: Connect) -> None:
    assert call(conn, "schema_version") == schema.newest()
    assert call(connect("worker"), "schema_version") == schema.newest()
