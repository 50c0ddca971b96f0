"""The errors, and the one table that makes them from PostgreSQL's SQLSTATEs."""

# ruff: noqa: N818 - names say what is the case, as in `except NotHeld`

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import psycopg

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._claim import Claim


class Error(Exception):
    """Base of pgonce's errors; sqlstate, detail and hint are PostgreSQL's where it raised the error."""

    def __init__(
        self,
        message: str,
        *,
        sqlstate: str | None = None,
        detail: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.sqlstate = sqlstate
        self.detail = detail
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nHINT:  {self.hint}"


class NotHeld(Error):
    """The token holds nothing (any more): stop working."""


class FingerprintMismatch(Error):
    """The key is known, with the fingerprint of another request."""


class HoldLimit(Error):
    """Renewing would pass max_hold; still held until expires_at."""


class InvalidArgument(Error, ValueError):
    """An argument is refused; nothing was written."""


class ReadOnlyServer(Error):
    """The connection leads to a server that cannot write, such as a standby."""


class NotInstalled(Error):
    """The schema pgonce is missing in this database, or older than this package."""


class Denied(Error):
    """The answer was no; ``claim`` says why, who holds it, and when asking again could succeed.

    ``last_error``: of an exhausted run, what its last attempt failed with, if the caller may read it.
    """

    def __init__(self, claim: Claim, last_error: str | None = None) -> None:
        why = " ".join((last_error or "").split())[:200]
        super().__init__(claim.describe() + (f"; the last one: {why}" if why else ""))
        self.args = (claim, last_error)  # what pickle gives back to __init__
        self.claim = claim
        self.last_error = last_error


# A key of two characters stands for the whole class.
_BY_SQLSTATE: dict[str, type[Error]] = {
    "22": InvalidArgument,
    "25006": ReadOnlyServer,
    "3F000": NotInstalled,
    "42883": NotInstalled,
    "ON001": NotHeld,
    "ON002": FingerprintMismatch,
    "ON003": HoldLimit,
}

_HINTS: dict[type[Error], str] = {
    NotInstalled: "Run `pgonce migrate`; for a revision of your own history see pgonce.schema.check(conn).",
}


@contextmanager
def translated() -> Iterator[None]:
    """Raise pgonce's error in place of psycopg's where the table knows the SQLSTATE."""
    try:
        yield
    except psycopg.Error as error:
        state = error.sqlstate or (
            "22" if isinstance(error, psycopg.DataError) else ""
        )  # psycopg's own: none
        kind = _BY_SQLSTATE.get(state) or _BY_SQLSTATE.get(state[:2])
        if kind is None:
            raise
        raise kind(
            error.diag.message_primary or str(error),
            sqlstate=state,
            detail=error.diag.message_detail,
            hint=_HINTS.get(kind, error.diag.message_hint),
        ) from error
