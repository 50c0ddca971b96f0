"""What the database says afterwards: was every window done exactly once?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from psycopg.rows import class_row

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    import psycopg

# The work of every job is one line in this table. Nothing in it forbids a second one: that is pgonce's part.
TABLE = """
    create table report (
        job          text not null,
        window_start timestamptz not null,
        host         text not null
    )
"""

# Every window between the first and the last that is expected, on record or worked in.
_WINDOWS = """
    with seen as (
        select unnest(%(expected)s::timestamptz[]) as window_start
        union select r.window_start from pgonce.runs r where r.name = %(job)s and r.window_start is not null
        union select p.window_start from report p where p.job = %(job)s
    ), due as (
        select s.window_start from seen s
        union select w.window_start
        from (select min(s.window_start) as since, max(s.window_start) as until from seen s) b
        cross join pgonce.windows(%(schedule)s, %(timezone)s, b.since, b.until) w
        where b.since is not null
    )
    select d.window_start, r.state, r.attempt, r.owner, e.effects
    from due d
    left join pgonce.runs r on r.name = %(job)s and r.window_start = d.window_start
    cross join lateral (
        select count(*) as effects from report p where p.job = %(job)s and p.window_start = d.window_start) e
    order by d.window_start
"""


@dataclass(frozen=True)
class Verdict:
    """What became of a window: its record, and how often its work took effect."""

    window_start: datetime
    state: str | None
    attempt: int | None
    owner: str | None
    effects: int

    @property
    def fault(self) -> str | None:
        if self.state is None:
            return "was never granted" + (f", but done {self.effects} times" if self.effects else "")
        if self.effects != 1:
            return f"was done {self.effects} times"
        return None if self.state == "done" else f"is {self.state}, not done"


def check(
    conn: psycopg.Connection[Any],
    job: str,
    schedule: str,
    timezone: str | None = None,
    expected: Sequence[datetime] = (),
) -> list[Verdict]:
    """All windows of the job from the first to the last, whether or not anything is known of them."""
    arguments = {"job": job, "schedule": schedule, "timezone": timezone, "expected": list(expected)}
    return conn.cursor(row_factory=class_row(Verdict)).execute(_WINDOWS, arguments).fetchall()


def faults(job: str, verdicts: Sequence[Verdict]) -> list[str]:
    if not verdicts:
        return [f"{job}: no window was granted"]
    return [f"{job}: window {v.window_start:%Y-%m-%d %H:%M:%S} {v.fault}" for v in verdicts if v.fault]
