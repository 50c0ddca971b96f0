"""Connections of our own: how they are made, reopened, and cut off when a server does not answer."""

from __future__ import annotations

import os
import socket
import sys
import threading
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict

from ._errors import ReadOnlyServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from psycopg_pool import ConnectionPool

Conn = psycopg.Connection[Any]
Dsn: TypeAlias = "str | ConnectionPool[Any] | Callable[[], Conn]"
T = TypeVar("T")

ENCODING = "UTF8"
_CONNECT_SECONDS = 5
_SETTINGS = "select set_config('client_encoding', %s, false), set_config('application_name', %s, false)"


class NotReplicated(psycopg.OperationalError):
    """The server stopped waiting for its synchronous standby: a failover could lose what it answered."""


# Errors after which nobody knows whether the database did what it was asked: lost connections, 40001, 40P01,
# 55P03, 57014, 57P01 and their like. All others are answers.
UNKNOWN = (psycopg.OperationalError, psycopg.InterfaceError)


def connect(dsn: Dsn) -> Conn:
    """A connection of our own, autocommit and in UTF-8 (in SQL_ASCII text would come back as bytes).

    A pool lends its settings and its ``configure``, never one of its connections.
    """
    if isinstance(dsn, str):
        return psycopg.connect(dsn, **_settings(dsn, {}))
    pools = sys.modules.get("psycopg_pool")
    if pools is not None and isinstance(dsn, pools.ConnectionPool):
        conninfo = dsn.conninfo() if callable(dsn.conninfo) else dsn.conninfo
        kwargs = dsn.kwargs() if callable(dsn.kwargs) else dsn.kwargs
        conn: Conn = dsn.connection_class.connect(conninfo, **_settings(conninfo, kwargs or {}))
        configure = getattr(dsn, "_configure", None)
        if configure is not None:
            configure(conn)
            _make_ours(conn)
        return conn
    if callable(dsn):
        made = dsn()
        if isinstance(made, psycopg.Connection):
            _make_ours(made)
            return made
    raise TypeError(
        "dsn: a connection string, a psycopg_pool.ConnectionPool, or a function without arguments "
        "that returns a psycopg.Connection is needed"
    )


def _settings(conninfo: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    """What a connection of ours is made with: what it was told, but for what we need."""
    told = {**conninfo_to_dict(conninfo), **kwargs}
    settings: dict[str, Any] = {"fallback_application_name": _name()}
    if "connect_timeout" not in told and "PGCONNECT_TIMEOUT" not in os.environ:
        settings["connect_timeout"] = _CONNECT_SECONDS
    ours = {"autocommit": True, "prepare_threshold": None, "client_encoding": ENCODING}
    return {**settings, **kwargs, **ours}


def _make_ours(conn: Conn) -> None:
    """The same of a connection that somebody else has made or changed, as far as that can be done now."""
    conn.autocommit = True
    name = conn.info.parameter_status("application_name") or _name()
    conn.execute(_SETTINGS, (ENCODING, name))


def _name() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


class Session:
    """One connection, used by one thread at a time, opened when needed and again when it broke."""

    def __init__(self, dsn: Dsn) -> None:
        self._dsn = dsn
        self._pid = os.getpid()
        self._conn: Conn | None = None
        self._not_replicated = False

    def call(self, seconds: float, function: Callable[[Conn], T]) -> T:
        """Call on the connection, for so many seconds at most; one of UNKNOWN for want of an answer."""
        conn = self._connected()
        self._not_replicated = False
        try:
            with _cut_off(conn, seconds):
                answer = function(conn)
        except (*UNKNOWN, ReadOnlyServer):
            self.close()  # a new one may lead to a server that answers, or to the new primary
            raise
        if self._not_replicated:
            raise NotReplicated("the server stopped waiting for its synchronous standby")
        return answer

    def close(self) -> None:
        """Close; in a forked child nothing is closed, since the connection is the parent's."""
        if os.getpid() == self._pid:
            conn, self._conn = self._conn, None  # a heartbeat that was stuck may close it, too
            if conn is not None:
                conn.close()

    def _connected(self) -> Conn:
        if self._conn is None or self._conn.closed:
            self._conn = connect(self._dsn)
            self._conn.add_notice_handler(self._on_notice)
        return self._conn

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == "SyncRepWaitForLSN":  # the message itself is translated
            self._not_replicated = True


@contextmanager
def _cut_off(conn: Conn, seconds: float) -> Iterator[None]:
    """Shut the socket down after so many seconds.

    A stopped server acknowledges what it is sent and answers nothing, so no timeout of TCP's and none of the
    server's own ends the wait. The socket is a duplicate: it cannot become somebody else's in the meantime.
    """
    with socket.socket(fileno=os.dup(conn.fileno())) as duplicate:

        def shut() -> None:
            with suppress(OSError):
                duplicate.shutdown(socket.SHUT_RDWR)

        timer = threading.Timer(seconds, shut)
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
