"""How it ends: exit statuses, after sysexits.h and env(1), and the line that says why."""

from __future__ import annotations

import sys

USAGE = 64
UNAVAILABLE = 69
DENIED = 75
LOST = 76
CANNOT_RUN = 126
NOT_FOUND = 127
SIGNALLED = 128  # and the signal's number


class UsageError(Exception):
    """What was asked for makes no sense; the text says what would."""


def say(text: str) -> None:
    print(f"pgonce: {text}", file=sys.stderr)
