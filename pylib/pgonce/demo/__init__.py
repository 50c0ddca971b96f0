"""``pgonce demo``: six hosts compete for the windows of a schedule, and one of them is killed at work."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["add_arguments", "main", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--seconds",
        metavar="N",
        type=_seconds,
        default=30,
        help="how long the hosts fire their schedule (default: 30)",
    )


def run(args: argparse.Namespace) -> int:
    """0 if every window was done exactly once, else 1."""
    from ._play import play  # loads a terminal library

    return play(args.seconds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pgonce demo", description=__doc__)
    add_arguments(parser)
    return run(parser.parse_args(argv))


def _seconds(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 4 <= int(text) <= 3600):
        raise argparse.ArgumentTypeError(f'"{text}" is not a number of seconds from 4 to 3600')
    return int(text)
