"""The answer to asking."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any


@dataclass(frozen=True)
class Claim:
    """A grant (true in a condition) or a denial, field by field ``pgonce.claim``; instants are in UTC."""

    claimed: bool
    reason: str
    name: str
    key: str | None = None
    token: int | None = None
    attempt: int | None = None
    owner: str | None = None
    expires_at: datetime | None = None
    window_start: datetime | None = None
    window_end: datetime | None = None
    retry_at: datetime | None = None
    result: Any = None

    def __bool__(self) -> bool:
        return self.claimed

    def describe(self) -> str:
        """For people: ``nightly 2026-03-01T02:00:00Z: held by a:71, until 2026-03-01T02:05:10Z``."""
        text = f"{self.name} {self.key}: {self.reason}" if self.key else f"{self.name}: {self.reason}"
        if self.claimed:
            return text
        if self.reason == "exhausted":
            text += f" after {self.attempt} attempt" + ("" if self.attempt == 1 else "s")
        elif self.reason == "late":
            text += ", its start_deadline is over"
        if self.owner:
            text += f" by {self.owner}"
        if self.expires_at:
            text += f", until {utc_text(self.expires_at)}"
        elif self.retry_at:
            text += f", again at {utc_text(self.retry_at)}"
        return text


def utc_text(instant: datetime) -> str:
    """As the database writes the key of a window: ``YYYY-MM-DDTHH:MM:SSZ``."""
    return instant.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
