"""The client's rules: when to ask again and as which question, until when a grant counts, when to beat.

Pure: no clock, thread, socket or connection. Instants are seconds of one monotonic clock, passed in. Whoever
drives these two classes sends the requests, sleeps, and reports what happened.
"""

from __future__ import annotations

import math
import random
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ._claim import Claim

ANSWER_SECONDS = 10.0  # a request that takes longer is cut off: unknown
PATIENCE_SECONDS = 3.0  # how long an unknown answer is asked for again
_TOKENS_SINCE = 1_735_689_600  # 2025-01-01 00:00 UTC
ALOUD = frozenset({"exhausted", "late"})  # denials after which nobody will do the work
MAY_CHANGE = frozenset({"held", "overlap", "backoff", "ahead"})  # denials that are worth waiting for


def backoff(first: float, longest: float) -> Iterator[float]:
    """Doubling delays with jitter, so that a crowd does not stay in step."""
    delay = first
    while True:
        yield delay * random.uniform(0.5, 1.0)
        delay = min(delay * 2, longest)


def seconds_granted(claim: Claim, asked: float) -> float:
    """How long a grant lasts: what was asked for, unless the database has cut it to max_hold.

    A token counts milliseconds since 2025 in units of 4096, so it tells when the grant was made, or a little
    later. (Much later only where the database's clock has gone back since an older grant.)
    """
    assert claim.token is not None
    assert claim.expires_at is not None
    return min(asked, claim.expires_at.timestamp() - _TOKENS_SINCE - claim.token // 4096 / 1000)


def attempt_seconds(left: float) -> float:
    """When to cut off a request: after half of what is left, so that another fits, but not before 2 s.

    At the latest after ANSWER_SECONDS: a firewall may have dropped the connection without a word.
    """
    return max(0.0, min(left, max(left / 2, 2.0), ANSWER_SECONDS))


class Asking:
    """A claim, asked until the answer is definite.

    An answer that is *unknown* (no answer, or ``busy``) is asked for again under the same nonce, for a few
    seconds. After a denial that may change it is another question, under a new nonce, while the caller waits.
    """

    def __init__(self, now: float, wait: float = 0.0) -> None:
        self._wait_until = now + wait
        self._eager_until = now + 30.0
        self._polls = backoff(0.1, 0.5)
        self._new_question()

    def _new_question(self) -> None:
        self.nonce: UUID = uuid4()
        self._retries = backoff(0.05, 0.5)
        self._patient_until: float | None = None
        self._sent = 0.0
        self._doubt: float | None = None

    @property
    def granted_from(self) -> float:
        """From when a grant counts: before the first request that may have brought it about."""
        return self._sent if self._doubt is None else self._doubt

    def send(self, now: float) -> float:
        """A request goes out now; returns the seconds after which to cut it off."""
        self._sent = now
        if self._patient_until is None:
            return ANSWER_SECONDS
        return max(1.0, self._patient_until - now)

    def unknown(self, now: float) -> float | None:
        """No definite answer: the seconds until the same question is asked again, or None to give up."""
        if self._doubt is None:
            self._doubt = self._sent
        return self._again(now)

    def answered(self, claim: Claim, now: float) -> float | None:
        """An answer: the seconds until asking again, or None when it is final."""
        if claim.reason == "busy":
            return self._again(now)
        if claim.claimed or claim.reason not in MAY_CHANGE or now >= self._wait_until:
            return None
        self._new_question()
        if now >= self._eager_until:
            self._eager_until = math.inf
            self._polls = backoff(2.0, 2.0)
        return min(next(self._polls), self._wait_until - now)

    def _again(self, now: float) -> float | None:
        if self._patient_until is None:
            self._patient_until = max(now + PATIENCE_SECONDS, self._wait_until)
        return next(self._retries) if now < self._patient_until else None


class Deadline:
    """What a holder knows of its own time. Lost once, lost for ever."""

    def __init__(self, sent: float, ttl: float) -> None:
        self._ttl = ttl
        self._margin = min(ttl / 10, 5.0)
        self.at_end = "the database did not confirm it in time"  # why it will be lost, if it is
        self.lost: str | None = None  # why
        self._count_from(sent)

    def _count_from(self, sent: float) -> None:
        self.ends_at = sent + self._ttl - self._margin
        self.beat_at = sent + self._ttl / 3

    def held(self, now: float) -> bool:
        if self.lost is None and now >= self.ends_at:
            self.lost = self.at_end
        return self.lost is None

    def give_up(self, why: str) -> None:
        self.lost = self.lost or why

    def renewed(self, sent: float, now: float) -> None:
        """A request sent at ``sent`` brought the whole ttl; an answer after the deadline revives nothing."""
        if self.held(now):
            self._count_from(sent)

    def at_limit(self) -> None:
        """It cannot be renewed further: no more beats, and the end stays."""
        self.at_end = "max_hold is reached"
        self.beat_at = math.inf
