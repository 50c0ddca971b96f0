"""``pgonce window``, ``lease`` and ``key``: run a command under a grant, with a heartbeat."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

import psycopg

from .. import _functions as functions
from .. import schema
from .._blocks import DEFAULT_TTL
from .._claim import Claim, utc_text
from .._connection import Conn
from .._errors import Denied, NotHeld
from .._hold import Hold, acquire, clock, logger, one_line
from ._database import EMBEDDED, open_dsn
from ._exit import CANNOT_RUN, DENIED, LOST, NOT_FOUND, SIGNALLED, UsageError, say
from ._process import Command, Signals

if TYPE_CHECKING:
    from argparse import Namespace

_NO_NEED = frozenset({"done", "paused", "skipped"})  # denials after which nothing is left to do
_KILL_AFTER = timedelta(seconds=10)

Ask = Callable[[Conn, UUID], Claim]


def window(args: Namespace) -> int:
    def ask(conn: Conn, nonce: UUID) -> Claim:
        return functions.claim_window(
            conn,
            args.job,
            args.schedule,
            timezone=args.timezone,
            ttl=args.ttl,
            owner=args.owner,
            window_start=args.window_start,
            nonce=nonce,
        )

    return _run(args, ask)


def key(args: Namespace) -> int:
    def ask(conn: Conn, nonce: UUID) -> Claim:
        return functions.claim_key(
            conn,
            args.scope,
            args.key,
            args.ttl,
            owner=args.owner,
            fingerprint=args.fingerprint,
            nonce=nonce,
        )

    return _run(args, ask)


def lease(args: Namespace) -> int:
    def ask(conn: Conn, nonce: UUID) -> Claim:
        return functions.acquire_lease(
            conn,
            args.name,
            args.ttl,
            owner=args.owner,
            slots=args.slots,
            max_hold=args.max_hold,
            min_hold=args.min_hold,
            nonce=nonce,
        )

    return _run(args, ask)


def _run(args: Namespace, ask: Ask) -> int:
    if args.ttl is None:
        args.ttl = min(DEFAULT_TTL, getattr(args, "max_hold", None) or DEFAULT_TTL)
    if args.kill_after is not None and args.kill_after > args.ttl / 3:
        raise UsageError(
            "--kill-after: at most a third of --ttl, so that the command ends before anybody else is granted"
        )
    with Signals() as signals, open_dsn(args.dsn) as dsn:
        try:
            hold = acquire(dsn, _after_check(ask), args.ttl, args.wait, signals.pause)
        except Denied as denied:
            if args.denied_exit is not None:
                return int(args.denied_exit)
            return 0 if denied.claim.reason in _NO_NEED else DENIED
        logger.info("%s, token %d", hold.claim.describe(), hold.token)
        env = _environment(hold.claim)
        if args.dsn == EMBEDDED:
            env["PGONCE_DSN"] = dsn  # what the command asks for is the same server, not one more
        with closing(hold):
            if args.kill_after is None:
                kill_after = min(_KILL_AFTER, hold.ttl / 6)
            else:
                kill_after = min(args.kill_after, hold.ttl / 3)
            return _work(hold, args.argv, env, kill_after.total_seconds(), signals)


def _after_check(ask: Ask) -> Ask:
    """The question, after a look at the schema: that says what to do, which a missing function would not."""

    def checked(conn: Conn, nonce: UUID) -> Claim:
        schema.check(conn)
        return ask(conn, nonce)

    return checked


def _environment(claim: Claim) -> dict[str, str]:
    values = {
        "PGONCE_TOKEN": claim.token,
        "PGONCE_ATTEMPT": claim.attempt,
        "PGONCE_WINDOW_START": claim.window_start and utc_text(claim.window_start),
        "PGONCE_WINDOW_END": claim.window_end and utc_text(claim.window_end),
    }
    inherited = {name: value for name, value in os.environ.items() if name not in values}
    return inherited | {name: str(value) for name, value in values.items() if value is not None}


def _work(hold: Hold, argv: list[str], env: dict[str, str], kill_after: float, signals: Signals) -> int:
    """Run the command from the grant to its end, and return the exit status."""
    hold.on_lost = signals.wake
    try:
        hold.start()
        while hold.held and (early := hold.early()) > 0:
            signals.pause(early)
        hold.stop()  # while the command is forked no other thread may run
        hold.check()
        signals.pause(0)
    except BaseException:
        hold.stop()
        if hold.held:
            _give_back(hold, "stopped by a signal before it began", stopped=True)
        raise
    signals.forward()
    try:
        command = Command(argv, env)
    except OSError as error:
        text = f"{argv[0]}: {error.strerror}"
        say(text)
        _give_back(hold, text)
        return NOT_FOUND if isinstance(error, FileNotFoundError) else CANNOT_RUN
    hold.start()
    stopped = _supervise(command, hold, kill_after, signals)
    hold.stop()

    status = command.status
    assert status is not None
    try:
        hold.check()
        if hold.claim.attempt is not None and status == 0:
            hold.done()
        else:
            _give_back(hold, _describe(status), stopped=stopped)
            hold.check()
    except NotHeld as error:
        say(error.message)
        return LOST
    except psycopg.Error as error:
        say(f"the command has ended well, but that could not be recorded: {one_line(error)}")
        return LOST
    return status if status >= 0 else SIGNALLED - status


def _give_back(hold: Hold, why: str, *, stopped: bool = False) -> None:
    if hold.claim.attempt is None:
        hold.release()
    else:
        hold.failed(why, stopped=stopped)


def _supervise(command: Command, hold: Hold, kill_after: float, signals: Signals) -> bool:
    """Until nothing of the command is left: forward signals, end it in time. Whether it was told to stop."""
    stopped = False
    kill_at: float | None = None  # None: it may run
    while command.running():
        now = clock()
        if kill_at is None:
            too_late = hold.ends_at - kill_after
            if now >= too_late:
                hold.give_up(f"{hold.ending}, and the command needs the rest of the time to end")
            if not hold.held or command.status is not None:  # lost, or it ended and left something behind
                kill_at = min(now + kill_after, hold.ends_at)
                command.end(signal.SIGTERM)
        elif now >= kill_at:
            command.end(signal.SIGKILL)
        # Of what left the group nothing tells us the end, so look often once it is near.
        for signum in signals.wait(too_late - now if kill_at is None else 0.02):
            stopped = stopped or signum in (signal.SIGTERM, signal.SIGINT)
            command.forward(signum)
    return stopped


def _describe(status: int) -> str:
    return f"exit status {status}" if status >= 0 else f"ended by {signal.Signals(-status).name}"
