"""A grant in the hands of a program: asked for, kept alive by a heartbeat, given back once."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from . import _functions as functions
from ._claim import Claim
from ._connection import UNKNOWN, Conn, Dsn, Session
from ._errors import Denied, HoldLimit, InvalidArgument, NotHeld
from ._rules import ALOUD, ANSWER_SECONDS, Asking, Deadline, attempt_seconds, backoff, seconds_granted

if TYPE_CHECKING:
    pass

Ask = Callable[[Conn, UUID], Claim]

_GIVE_BACK_SECONDS = 5.0  # for what expiry would do anyway

logger = logging.getLogger("pgonce")


def clock() -> float:
    """Monotonic seconds, which go on while the machine is suspended where the system can tell."""
    return time.clock_gettime(_CLOCK)


_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Hold:
    """A grant, from its answer to its end.

    The session is the heartbeat's from ``start`` to ``stop``, and the caller's before and after.
    """

    def __init__(
        self, session: Session, claim: Claim, sent: float, ttl: timedelta, *, cut: bool = False
    ) -> None:
        assert claim.token is not None
        self.claim = claim
        self.token: int = claim.token
        self.label = f"{claim.name} {claim.key}"
        self.on_lost: Callable[[], None] = lambda: None  # called by the heartbeat's thread
        self._session = session
        self._ttl = ttl
        self._received = clock()
        self._deadline = Deadline(sent, ttl.total_seconds())
        if cut:  # to max_hold, so that no beat could make it longer
            self._deadline.at_limit()
        self._lock = threading.Lock()  # of the deadline
        self._asked_again = False
        self.refused = False  # the database answered a beat: this token holds nothing
        self._pid = os.getpid()
        self._stopping = threading.Event()
        self._lost = threading.Event()
        self._thread: threading.Thread | None = None
        self._beating = False
        self._closed = False
        self._left = False

    @property
    def ttl(self) -> timedelta:
        """What was granted: what was asked for, or less."""
        return self._ttl

    @property
    def held(self) -> bool:
        return self._why_lost() is None

    def leave(self) -> None:
        """The work is over, whatever becomes of the grant: from now on ``check_inside`` raises."""
        self._left = True

    @property
    def held_inside(self) -> bool:
        """``held``, for whoever works under it."""
        return not self._left and self.held

    def check_inside(self) -> None:
        """``check``, for whoever works under it."""
        if self._left:
            raise NotHeld(f"{self.label} is not held any more: the block that held it has ended")
        self.check()

    @property
    def ends_at(self) -> float:
        """Until when (by ``clock``) it is ours if no further beat is answered."""
        with self._lock:
            return self._deadline.ends_at

    @property
    def ending(self) -> str:
        """Why it is lost at its end, if no beat is answered until then."""
        with self._lock:
            return self._deadline.at_end

    def check(self) -> None:
        why = self._why_lost()
        if why is not None:
            raise NotHeld(f"{self.label} is not held any more: {why}")

    def give_up(self, why: str) -> None:
        with self._lock:
            self._deadline.give_up(why)

    def start(self) -> None:
        """Let the heart beat, until ``stop``."""
        self._stopping.clear()
        self._beating = True
        self._thread = threading.Thread(target=self._beat_on, name=f"pgonce {self.label}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the heartbeat and wait for a beat under way; none follows."""
        self._stopping.set()
        if self._thread is not None and self._thread.is_alive():  # it is not in a forked child
            self._thread.join(max(0.0, self.ends_at - clock()))

    def early(self) -> float:
        """How many seconds before its window the grant still is, by the database's clock."""
        if self.claim.window_start is None or self.claim.expires_at is None:
            return 0.0
        granted_at = self.claim.expires_at - self._ttl
        return (self.claim.window_start - granted_at).total_seconds() - (clock() - self._received)

    def wait_for_start(self) -> None:
        self._lost.wait(max(0.0, self.early()))
        self.check()

    # The three ways to end, after ``stop``. Each asks again while its answer is unknown, which is safe. If it
    # was not ours any more, ``done`` raises, and after the others ``check`` does.

    def done(self, result: object = None) -> None:
        """The run is done; else ``NotHeld``, or psycopg's error when nothing is known."""
        try:
            self._insist(lambda conn: functions.mark_done(conn, self.token, result), self.ends_at)
        except NotHeld as error:
            self.give_up(error.message)
            raise

    def failed(self, why: str, *, stopped: bool = False) -> None:
        """The run failed. If that cannot be told there is only a warning, as it expires by itself.

        Stopped, by a deploy or a person: not the work's fault, so another host may have it at once.
        """
        text = why.replace("\0", "").encode(errors="replace").decode()
        retry_in = "0" if stopped else None
        self._give_back(
            lambda conn: functions.mark_failed(conn, self.token, text, retry_in=retry_in, counted=not stopped)
        )

    def release(self) -> None:
        """Free the lease. If that cannot be told there is only a warning, as it expires by itself."""
        released = self._give_back(lambda conn: functions.release_lease(conn, self.token))
        if released is False and not self._asked_again:  # else it may be the first request that released it
            self.give_up("somebody else took it, or it was released by force")

    def close(self) -> None:
        """Close the session; a heartbeat that is stuck with it does so when it ends."""
        self._closed = True
        if not self._beating:
            self._session.close()

    def _why_lost(self) -> str | None:
        if os.getpid() != self._pid:  # before the lock, which the fork may have copied locked
            return "this process is a fork of its holder"
        with self._lock:
            self._deadline.held(clock())
            return self._deadline.lost

    def _give_back(self, call: Callable[[Conn], bool]) -> bool | None:
        try:
            return self._insist(call, min(self.ends_at, clock() + _GIVE_BACK_SECONDS))
        except NotHeld as error:
            self.give_up(error.message)
        except Exception as error:  # noqa: BLE001 - it must not hide why it is given back
            logger.warning("%s could not be given back, it will expire: %s", self.label, one_line(error))
        return None

    def _insist(self, call: Callable[[Conn], bool], until: float) -> bool:
        delays = backoff(0.05, 1.0)
        while True:
            try:
                return self._session.call(attempt_seconds(until - clock()), call)
            except UNKNOWN:
                delay = next(delays)
                if clock() + delay >= until:
                    raise
                self._asked_again = True
                time.sleep(delay)

    # Only the heartbeat's thread moves the deadline, so it alone reads it without the lock.

    def _beat_on(self) -> None:
        try:
            self._beat_until_stopped()
        finally:
            self._beating = False
            if self._closed:
                self._session.close()

    def _beat_until_stopped(self) -> None:
        while not self._stopping.wait(
            max(0.0, min(self._deadline.beat_at, self._deadline.ends_at) - clock())
        ):
            self._beat()
            why = self._why_lost()
            if why is not None:
                if not self._stopping.is_set():
                    logger.warning("%s is lost: %s", self.label, why)
                self._lost.set()
                self.on_lost()
                return

    def _beat(self) -> None:
        """One beat, asked again until the answer is definite, or it is too late, or nobody needs it now."""
        delays = backoff(0.1, 1.0)
        told = False
        while self.held and clock() >= self._deadline.beat_at and not self._stopping.is_set():
            sent = clock()
            try:
                self._session.call(attempt_seconds(self._deadline.ends_at - sent), self._renew)
            except NotHeld as error:
                self.refused = True
                self.give_up(error.message)
            except HoldLimit as error:
                logger.warning("%s cannot be renewed any more: %s", self.label, error.message)
                with self._lock:
                    self._deadline.at_limit()
            except Exception as error:  # noqa: BLE001 - whatever it is, the deadline decides
                if not told and not self._stopping.is_set():
                    logger.warning(
                        "%s: no answer to a heartbeat, asking again: %s", self.label, one_line(error)
                    )
                told = True
                self._stopping.wait(min(next(delays), max(0.0, self.ends_at - clock())))
            else:
                with self._lock:
                    self._deadline.renewed(sent, clock())

    def _renew(self, conn: Conn) -> None:
        functions.renew_lease(conn, self.token, self._ttl)


def acquire(
    dsn: Dsn, ask: Ask, ttl: timedelta, wait: timedelta, sleep: Callable[[float], None] = time.sleep
) -> Hold:
    """Ask until the answer is definite; ``Denied`` when it is no, psycopg's error when there was none."""
    session = Session(dsn)
    asking = Asking(clock(), wait.total_seconds())
    try:
        while True:
            seconds = asking.send(clock())
            try:
                claim = session.call(seconds, lambda conn: ask(conn, asking.nonce))
            except UNKNOWN:
                delay = asking.unknown(clock())
                if delay is None:
                    raise
            else:
                delay = asking.answered(claim, clock())
                if delay is None:
                    break
            sleep(delay)
        if not claim.claimed:
            raise _denied(session, claim)
        granted, cut = _granted(session, claim, ttl)
        return Hold(session, claim, asking.granted_from, granted, cut=cut)
    except BaseException:
        session.close()
        raise


def _denied(session: Session, claim: Claim) -> Denied:
    """Said aloud when nobody will do the work; with the last error, where this role may read it."""
    error = None
    if claim.reason == "exhausted":
        with suppress(Exception):
            error = session.call(ANSWER_SECONDS, lambda conn: functions.last_error(conn, claim))
    denied = Denied(claim, error)
    logger.log(logging.WARNING if claim.reason in ALOUD else logging.INFO, "denied: %s", denied)
    return denied


def _granted(session: Session, claim: Claim, asked: timedelta) -> tuple[timedelta, bool]:
    """The ttl that holds, and whether it was cut to the job's or scope's max_hold.

    If it looks cut, a renewal tells, which refuses a ttl above max_hold: it may also be the database's clock
    that has gone back.
    """
    ttl = timedelta(seconds=seconds_granted(claim, asked.total_seconds()))
    if asked - ttl <= asked / 50:  # no more than it takes to make a token
        return ttl, False
    try:
        session.call(ANSWER_SECONDS, lambda conn: functions.renew_lease(conn, claim.token, asked))
    except (InvalidArgument, HoldLimit):
        return ttl, True
    except UNKNOWN:
        return ttl, False
    return asked, False


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
