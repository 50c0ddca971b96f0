"""Durations: what the client itself must know in seconds, and how one is written for PostgreSQL."""

from __future__ import annotations

import re
from datetime import timedelta

from ._errors import InvalidArgument

Span = timedelta | str

_UNITS = {
    "milliseconds": ("ms", "msec", "msecs", "millisecond", "milliseconds"),
    "seconds": ("", "s", "sec", "secs", "second", "seconds"),
    "minutes": ("m", "min", "mins", "minute", "minutes"),
    "hours": ("h", "hr", "hrs", "hour", "hours"),
    "days": ("d", "day", "days"),
    "weeks": ("w", "week", "weeks"),
}
_UNIT = {word: unit for unit, words in _UNITS.items() for word in words}
_PART = r"(?a:\s*(\d+(?:\.\d+)?)\s*([a-z]*))"
_CLOCK = re.compile(r"(?a:\s*(\d+):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?\s*)")


def span(value: Span, name: str) -> timedelta:
    """A duration from ``timedelta``, ``"90s"``, ``"1h 30 minutes"``, ``"00:05:00"`` or ``"5"`` (seconds)."""
    if isinstance(value, timedelta):
        return value
    check_kind(value, name)
    if value.lstrip().startswith("-"):
        raise InvalidArgument(f"{name}: {value} is negative", hint='Say how long from now, such as "90s".')
    try:
        if clock := _CLOCK.fullmatch(value):
            hours, minutes, seconds = clock.groups()
            return timedelta(hours=int(hours), minutes=int(minutes), seconds=float(seconds or 0))
        if re.fullmatch(f"(?:{_PART})+\\s*", value.lower()):
            parts = re.findall(_PART, value.lower())
            return sum((timedelta(**{_UNIT[unit]: float(number)}) for number, unit in parts), timedelta())
    except (KeyError, OverflowError):
        pass  # no such unit, or too long
    raise InvalidArgument(
        f'{name}: "{value}" is not a duration',
        hint='Say "90s", "5 minutes" or "1h 30m"; months and years have no length.',
    )


def check_kind(value: object, name: str) -> None:
    """``TypeError`` for what is neither text nor a timedelta: of a number nobody knows the unit."""
    if not isinstance(value, timedelta | str):
        kind = type(value).__qualname__
        raise TypeError(f"{name}: a timedelta or a text such as '60s' is needed, not the {kind} {value!r}")


def interval(value: Span) -> str:
    """As PostgreSQL reads it whatever the session's IntervalStyle is: every part has its own sign."""
    if isinstance(value, str):
        return value
    sign = "-" if value < timedelta() else "+"
    length = abs(value)
    return f"{sign}{length.days} days {sign}{length.seconds}.{length.microseconds:06} seconds"
