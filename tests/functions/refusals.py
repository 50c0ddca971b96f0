"""Bad input: the table of a function's refusals, and how each row of it is checked."""

from __future__ import annotations

import re
from typing import Any

import psycopg
from psycopg import sql

from tests.helpers import Conn, Row, call

# What is refused: the argument, the value given, what the message says, what the hint says.
Refusal = tuple[str, Any, str, str]


def tables(conn: Conn) -> dict[str, list[str]]:
    """Every row of every table of pgonce's, as text."""
    names = conn.execute(
        "select relname as name from pg_class where relnamespace = 'pgonce'::regnamespace and relkind = 'r'"
    ).fetchall()
    return {
        row["name"]: [
            each["text"]
            for each in conn.execute(
                sql.SQL("select t::text as text from pgonce.{} t order by 1").format(
                    sql.Identifier(row["name"])
                )
            )
        ]
        for row in names
    }


def assert_refused(conn: Conn, function: str, valid: Row, cases: list[Refusal]) -> None:
    """Each value, put into a call that is good without it, is refused as told (22023); nothing is written."""
    before = tables(conn)
    wrong = []
    for argument, given, message, hint in cases:
        try:
            answer = f"not refused: {call(conn, function, **{**valid, argument: given})}"
        except psycopg.Error as error:
            said = error.diag
            if (
                said.sqlstate == "22023"
                and re.search(rf"\b{argument}\b", said.message_primary or "")
                and message in (said.message_primary or "")
                and said.message_hint
                and hint in said.message_hint
            ):
                continue
            answer = f"{said.sqlstate} {said.message_primary!r}, hint {said.message_hint!r}"
        wrong.append(f"{argument} => {given!r}: {answer}; expected {message!r}, hint {hint!r}")
    assert not wrong, "\n".join(wrong)
    assert tables(conn) == before
    with conn.transaction(force_rollback=True):
        call(conn, function, **valid)


def bad_names(argument: str, longest: int = 200, *, required: bool = True) -> list[Refusal]:
    """Every way in which a name, a key or a label is refused."""
    hint = f"Give {argument} as 1 to {longest} bytes"
    cases = [
        ("", 'must not be empty: ""'),
        (" a", 'begins or ends with a space: " a"'),
        ("a ", 'begins or ends with a space: "a "'),
        (" ", 'begins or ends with a space: " "'),
        ("a" * (longest + 1), f'is too long ({longest + 1} bytes): "aaa'),
        ("é" * (longest // 2) + "é", f'is too long ({longest + 2} bytes): "éé'),
        ("a\nb", r'contains a control character: "a\nb"'),
        ("\ta", r'contains a control character: "\ta"'),
        ("a\x01b", r'contains a control character: "a\u0001b"'),
        ("a\x7fb", "contains a control character"),
        ("a\x85b", "contains a control character"),
    ]
    refused: list[Refusal] = [(argument, given, f"{argument} {fault}", hint) for given, fault in cases]
    if required:
        refused.append((argument, None, f"{argument} must not be null", hint))
    return refused


def bad_durations(conn: Conn, argument: str, *, zero: bool, required: bool = False) -> list[Refusal]:
    """Every way in which a duration is refused; ``zero``: 0 is allowed, and means none."""
    cases = [
        ("1 month", "must not contain months or years: 1 mon"),
        ("-1 month", "must not contain months or years: -1 mons"),
        ("1 year", "must not contain months or years: 1 year"),
        ("1 month -30 days", "must not contain months or years: 1 mon -30 days"),
        ("-1 second", "must not be negative: -00:00:01"),
        ("-1 microsecond", "must not be negative: -00:00:00.000001"),
        ("-1 day", "must not be negative: -1 days"),
        ("1 day -1 hour", "must not mix signs: 1 day -01:00:00"),
        ("-1 day 25 hours", "must not mix signs: -1 days +25:00:00"),
        ("1 microsecond", "is too short: 00:00:00.000001"),
        ("99.999 milliseconds", "is too short: 00:00:00.099999"),
        ("366 days 1 microsecond", "is too long: 366 days 00:00:00.000001"),
        ("8785 hours", "is too long: 8785:00:00"),
        # Seen to fail (22003, integer out of range): _duration multiplies the days, an integer, by 86400.
        ("2147483647 days", "is too long: 2147483647 days"),
    ]
    if not zero:
        cases.append(("0", "is too short: 00:00:00"))
    if conn.info.server_version >= 170000:  # before, there is no infinite interval
        cases += [("infinity", "must be finite: infinity"), ("-infinity", "must be finite: -infinity")]
    hint = "100 milliseconds to 366 days" + (
        " of weeks, days, hours, minutes or seconds, or 0 for none" if zero else ""
    )
    refused: list[Refusal] = [(argument, given, f"{argument} {fault}", hint) for given, fault in cases]
    if required:
        refused.append((argument, None, f"{argument} must not be null", ""))
    return refused
