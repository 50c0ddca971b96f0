"""Who plays: the job, the hosts, and what a host tells."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from typing import Literal

JOB = "report"
EVERY = 4  # seconds
SCHEDULE = f"every {EVERY} seconds"
TTL = "2 seconds"  # with a heartbeat: a holder that dies is replaced within its window

LONG = 3.75  # seconds of work: not done yet when the next trigger fires early, but when the others do
SHORT = 1.0


@dataclass(frozen=True)
class Host:
    name: str
    offset: float  # seconds after the fire time at which its trigger fires
    spare: bool = False  # keeps asking until the window is done, or its own

    @property
    def note(self) -> str:
        if self.spare:
            return "spare"
        return f"{-self.offset * 1000:.0f} ms early" if self.offset < 0 else ""


HOSTS = {
    host.name: host
    for host in (
        Host("east-1", 0.00),
        Host("east-2", -0.30),
        Host("east-3", 0.25, spare=True),
        Host("west-1", 0.02),
        Host("west-2", 0.08),
        Host("west-3", 0.35, spare=True),
    )
}


@dataclass(frozen=True)
class Plan:
    """What the hosts are told once all of them are ready: the first fire time and the number of windows."""

    first: datetime
    count: int

    def seconds_of_work(self, window_start: datetime, attempt: int) -> float:
        number = round((window_start - self.first).total_seconds()) // EVERY
        return SHORT if attempt > 1 or number % 3 == 2 else LONG

    def to_json(self) -> str:
        return json.dumps([self.first.timestamp(), self.count])

    @classmethod
    def from_json(cls, line: str) -> Plan:
        first, count = json.loads(line)
        return cls(instant(first), count)


@dataclass(frozen=True)
class Event:
    """What a host tells; instants are in seconds of the epoch."""

    host: str
    what: Literal["ready", "granted", "finished", "denied", "lost", "no answer", "killed"]
    at: float
    asked: float | None = None  # when its trigger fired
    window_start: float | None = None
    attempt: int | None = None
    reason: str | None = None
    holder: str | None = None
    asks_again: bool = False

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, line: str) -> Event:
        return cls(**json.loads(line))


def instant(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, timezone.utc)
