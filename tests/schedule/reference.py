"""When a schedule fires, by definition: the rules A, B and C of the design, minute by minute, over zoneinfo.

Nothing is shared with sql/schedule, not even a parser: a drawn expression comes with its meaning. Nothing is
fast either.
"""

from __future__ import annotations

import calendar
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from functools import cached_property
from pathlib import Path
from zoneinfo import ZoneInfo

UTC = timezone.utc
SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
DAY = timedelta(days=1)
DAYS_OF_41_YEARS = 41 * 366  # no date on a given weekday takes longer to come back than 40 years

DayTest = Callable[[date], bool]


def zone_folder(bindir: Path) -> Path:
    """The zones as the server knows them: its own files if it brings some, which may be older or newer."""
    return next(bindir.parent.glob("share/**/timezone"), Path("/usr/share/zoneinfo"))


class Zone:
    """A time zone."""

    def __init__(self, name: str, bindir: Path) -> None:
        with (zone_folder(bindir) / name).open("rb") as file:
            self.info = ZoneInfo.from_file(file, key=name)

    def wall(self, instant: datetime) -> datetime:
        """What the clock shows."""
        return instant.astimezone(self.info).replace(tzinfo=None)

    def offset(self, instant: datetime) -> timedelta:
        return self.wall(instant) - instant.replace(tzinfo=None)

    def instants(self, wall: datetime) -> list[datetime]:
        """The instants that show a local time, in order: none, one or two."""
        candidates = {wall.replace(tzinfo=self.info, fold=fold).astimezone(UTC) for fold in (0, 1)}
        return sorted(instant for instant in candidates if self.wall(instant) == wall)

    def change(self, before: datetime, after: datetime) -> datetime:
        """The first instant with another offset than `before`."""
        old = self.offset(before)
        while after - before > SECOND:
            middle = before + (after - before) // SECOND // 2 * SECOND
            before, after = (middle, after) if self.offset(middle) == old else (before, middle)
        return after

    def jump(self, wall: datetime) -> datetime:
        """The transition that jumps over a local time."""
        after, before = (wall.replace(tzinfo=self.info, fold=fold).astimezone(UTC) for fold in (0, 1))
        return self.change(before, after)

    @cached_property
    def transitions(self) -> list[datetime]:
        """Those from 1850 to 2200 that last for five days."""
        found = []
        before = datetime(1850, 1, 1, tzinfo=UTC)
        old = self.offset(before)
        while before.year < 2200:
            after = before + 5 * DAY
            new = self.offset(after)
            if new != old:
                found.append(self.change(before, after))
            before, old = after, new
        return found

    @cached_property
    def offsets(self) -> tuple[timedelta, timedelta]:
        """The least and the greatest it ever had."""
        moments = [datetime(1850, 1, 1, tzinfo=UTC), *self.transitions]
        return min(map(self.offset, moments)), max(map(self.offset, moments))


@dataclass(frozen=True)
class Cron:
    """An expression and what it means."""

    text: str
    minutes: list[int]
    hours: list[int]
    months: set[int]
    month_days: list[DayTest]
    week_days: list[DayTest]
    both: bool  # day fields: both must match, not one of them
    repeat: bool

    def names(self, day: date) -> bool:
        if day.month not in self.months:
            return False
        in_month = any(test(day) for test in self.month_days)
        in_week = any(test(day) for test in self.week_days)
        return in_month and in_week if self.both else in_month or in_week

    def walls(self, start: datetime, direction: int) -> Iterator[datetime]:
        """The local times named, from `start` on, later or earlier ones."""
        for number in range(DAYS_OF_41_YEARS):
            day = start.date() + direction * number * DAY
            if self.names(day):
                for hour in self.hours[::direction]:
                    for minute in self.minutes[::direction]:
                        wall = datetime.combine(day, time(hour, minute))
                        if (wall - start) * direction >= timedelta(0):
                            yield wall

    def fires(self, zone: Zone, wall: datetime) -> list[datetime]:
        """The instants at which a local time named makes the schedule fire."""
        shown = zone.instants(wall)
        if shown:
            return shown if self.repeat else shown[:1]  # rules B and A
        return [zone.jump(wall)] if len(self.hours) < 24 else []  # rule C

    def window(self, zone: Zone, at: datetime) -> tuple[datetime, datetime] | None:
        """The last fire time not after an instant, and the first one after it; None if it never fires."""
        least, most = zone.offsets
        earlier: set[datetime] = set()
        for wall in self.walls((at + most).replace(tzinfo=None), -1):
            if earlier and wall.replace(tzinfo=UTC) - least < max(earlier):
                break
            earlier.update(fire for fire in self.fires(zone, wall) if fire <= at)
        later: set[datetime] = set()
        for wall in self.walls((at + least).replace(tzinfo=None), 1):
            if later and wall.replace(tzinfo=UTC) - most > min(later):
                break
            later.update(fire for fire in self.fires(zone, wall) if fire > at)
        return (max(earlier), min(later)) if earlier and later else None


# Drawing


MONTHS = ["", "JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


def draw_item(rng: random.Random, low: int, high: int, names: list[str]) -> tuple[str, set[int]]:
    """One item of any field, and the values it names; 7 among the days of the week is still 7."""
    top = 7 if names is DAYS else high  # greatest value and step

    def spell(value: int) -> str:
        spellings = [str(value), f"{value:02}", *([names[value]] if value < len(names) else [])]
        return rng.choice([str.upper, str.lower, str.title])(rng.choice(spellings))

    step = rng.randint(1, top)
    first = rng.randint(low, top)
    last = rng.randint(first, top)
    upper = "SUN" if names is DAYS and last == 7 and first > 0 and rng.random() < 0.5 else spell(last)
    match rng.choice(["*", "*/", "value", "value", "value/", "range", "range/"]):
        case "*":
            return "*", set(range(low, high + 1))
        case "*/":
            return f"*/{step}", set(range(low, high + 1, step))
        case "value":
            return spell(first), {first}
        case "value/":
            from_day = first % 7 if names is DAYS else first
            return f"{spell(first)}/{step}", set(range(from_day, high + 1, step))
        case "range":
            return f"{spell(first)}-{upper}", set(range(first, last + 1))
        case _:
            return f"{spell(first)}-{upper}/{step}", set(range(first, last + 1, step))


def draw_set(
    rng: random.Random, low: int, high: int, names: list[str], everything: float
) -> tuple[str, list[int]]:
    """A list of items, or (with this probability) a star."""
    if rng.random() < everything:
        return "*", list(range(low, high + 1))
    items = [draw_item(rng, low, high, names) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return ",".join(text for text, _ in items), sorted(set().union(*(values for _, values in items)))


def length(day: date) -> int:
    return calendar.monthrange(day.year, day.month)[1]


def working_days(day: date) -> list[int]:
    """Monday to Friday, of the same month."""
    return [n for n in range(1, length(day) + 1) if day.replace(day=n).weekday() < 5]


def nearest(number: int) -> DayTest:
    """Whether a day is the Monday to Friday nearest to this one inside the month, which must have it."""

    def test(day: date) -> bool:
        return number <= length(day) and day.day == min(working_days(day), key=lambda n: abs(n - number))

    return test


def draw_month_day(rng: random.Random) -> tuple[str, DayTest]:
    number = rng.choice([1, 28, 30, 31, rng.randint(1, 31)])
    back = rng.randint(1, 30)
    match rng.choice(["plain"] * 4 + ["L", "L-", "LW", "W", "W"]):
        case "L":
            return rng.choice("Ll"), lambda day: day.day == length(day)
        case "L-":
            return f"L-{back}", lambda day: day.day == length(day) - back
        case "LW":
            return "LW", lambda day: day.day == max(working_days(day))
        case "W":
            return f"{number}W", nearest(number)
    text, values = draw_item(rng, 1, 31, [])
    return text, lambda day: day.day in values


def draw_week_day(rng: random.Random) -> tuple[str, DayTest]:
    number = rng.randint(0, 7)
    which = rng.randint(1, 5)
    name = rng.choice([str(number), DAYS[number % 7]])
    match rng.choice(["plain"] * 4 + ["L", "#"]):
        case "L":
            return f"{name}L", lambda day: day.isoweekday() % 7 == number % 7 and day.day > length(day) - 7
        case "#":
            return (
                f"{name}#{which}",
                lambda day: day.isoweekday() % 7 == number % 7 and 7 * (which - 1) < day.day <= 7 * which,
            )
    text, values = draw_item(rng, 0, 6, DAYS)
    return text, lambda day: day.isoweekday() % 7 in {value % 7 for value in values}


def draw_days(
    rng: random.Random, draw: Callable[[random.Random], tuple[str, DayTest]], everything: float
) -> tuple[str, list[DayTest]]:
    if rng.random() < everything:
        return "*", [lambda _: True]
    items = [draw(rng) for _ in range(rng.choice([1, 1, 1, 2, 3]))]
    return ",".join(text for text, _ in items), [test for _, test in items]


def draw_cron(rng: random.Random, wall: datetime) -> Cron:
    """Any expression, or one that fires in this hour or the next one on most days."""
    aimed = rng.random() < 0.5
    minute, minutes = draw_set(rng, 0, 59, [], 0.2)
    hour, hours = draw_set(rng, 0, 23, [], 0.3)
    if aimed and hour != "*":
        hours = sorted({(wall.hour + rng.randint(0, 1)) % 24 for _ in range(rng.randint(1, 2))})
        hour = ",".join(map(str, hours))
    month, months = draw_set(rng, 1, 12, MONTHS, 1.0 if aimed else 0.5)
    month_day, month_days = draw_days(rng, draw_month_day, 0.9 if aimed else 0.4)
    week_day, week_days = draw_days(rng, draw_week_day, 0.9 if aimed else 0.4)
    blanks = (rng.choice([" ", " ", "\t", "  "]) for _ in range(4))
    text = minute + "".join(b + f for b, f in zip(blanks, [hour, month_day, month, week_day], strict=True))
    return Cron(
        text=text,
        minutes=minutes,
        hours=hours,
        months=set(months),
        month_days=month_days,
        week_days=week_days,
        both=month_day.startswith("*") or week_day.startswith("*"),
        repeat=minute.startswith("*") or len(hours) == 24,
    )


def draw_moment(rng: random.Random, zone: Zone) -> tuple[datetime, datetime]:
    """An instant, and a local time of interest.

    Half of the instants are within a day of a transition, most of these within an hour. The local time
    is then the last minute before it.
    """
    transitions = [transition for transition in zone.transitions if transition.year >= 1900]
    if transitions and rng.random() < 0.5:
        transition = rng.choice(transitions)
        spread = rng.choice([1, 3600, 3600, 7200, 86400])
        return transition + timedelta(seconds=rng.randint(-spread, spread)), zone.wall(transition - MINUTE)
    at = datetime(1900, 1, 1, tzinfo=UTC) + timedelta(
        seconds=rng.randint(0, 290 * 365 * 86400), microseconds=rng.choice([0, 0, 1, 999_999])
    )
    return at, zone.wall(at)
