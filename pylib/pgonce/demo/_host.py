"""One host, a process of its own: ``python -m pgonce.demo._host NAME``, with the database in PGONCE_DSN.

It says that it is ready, is told the plan, fires at every fire time (give or take its offset) and tells each
answer as a line of JSON. It ends with the demo, however that ends.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import psycopg

import pgonce

from ._cast import EVERY, HOSTS, JOB, SCHEDULE, TTL, Event, Host, Plan

if TYPE_CHECKING:
    from datetime import datetime

_JITTER = 0.05  # seconds: no two schedulers are in step
_ASK_AGAIN = 0.2
_MAY_CHANGE = ("held", "busy", "overlap", "backoff")

_output = threading.Lock()


class Trigger:
    """One firing of a host's schedule; which window that is, the database says."""

    def __init__(self, host: Host, plan: Plan, dsn: str) -> None:
        self._host = host
        self._plan = plan
        self._dsn = dsn
        self._asked: float | None = None
        self._claim: pgonce.Claim | None = None
        self._told: tuple[str, str | None] | None = None

    def fire(self) -> None:
        self._asked = time.time()
        window_start: datetime | None = None
        while True:
            try:
                self._ask(window_start)
                return
            except pgonce.Denied as denied:
                claim = denied.claim
            except pgonce.NotHeld:
                self._tell("lost", self._claim)
                return
            except psycopg.OperationalError:
                self._tell("no answer", self._claim)
                return
            again = self._host.spare and claim.reason in _MAY_CHANGE
            if (claim.reason, claim.owner) != self._told:
                self._tell("denied", claim, reason=claim.reason, holder=claim.owner, asks_again=again)
                self._told = (claim.reason, claim.owner)
            if not again:
                return
            window_start = claim.window_start  # a spare keeps to the window that it asked for first
            time.sleep(_ASK_AGAIN * random.uniform(0.5, 1.0))

    def _ask(self, window_start: datetime | None) -> None:
        """The job as a program of yours would do it: it takes its time, and leaves one line in a table."""
        with pgonce.window(
            self._dsn, JOB, SCHEDULE, ttl=TTL, owner=self._host.name, window_start=window_start
        ) as run:
            self._claim = run.claim
            self._tell("granted", run.claim)
            self._work(run)
            with psycopg.connect(self._dsn) as conn:  # one transaction: whoever was overtaken writes nothing
                pgonce.assert_held(conn, run.token, in_transaction=True)
                conn.execute(
                    "insert into report (job, window_start, host) values (%s, %s, %s)",
                    (JOB, run.window_start, self._host.name),
                )
        self._tell("finished", run.claim)

    def _work(self, run: pgonce.Run) -> None:
        assert run.window_start is not None
        assert run.attempt is not None
        ends_at = time.monotonic() + self._plan.seconds_of_work(run.window_start, run.attempt)
        while time.monotonic() < ends_at:
            run.check()
            time.sleep(0.05)

    def _tell(self, what: Any, claim: pgonce.Claim | None, **details: Any) -> None:
        if claim is not None and claim.window_start is not None:
            details |= {"window_start": claim.window_start.timestamp(), "attempt": claim.attempt}
        tell(Event(self._host.name, what, time.time(), self._asked, **details))


def tell(event: Event) -> None:
    with _output:
        print(event.to_json(), flush=True)


def main() -> None:
    host = HOSTS[sys.argv[1]]
    dsn = os.environ["PGONCE_DSN"]
    tell(Event(host.name, "ready", time.time()))
    plan = Plan.from_json(sys.stdin.readline())
    threading.Thread(target=_end_with_demo, daemon=True).start()

    triggers = []
    for number in range(plan.count):
        fires_at = plan.first.timestamp() + number * EVERY + host.offset
        if host.offset >= 0:
            fires_at += random.uniform(0.0, _JITTER)
        elif number == 0:
            continue  # it would find the window before the first
        time.sleep(max(0.0, fires_at - time.time()))
        trigger = threading.Thread(target=Trigger(host, plan, dsn).fire)
        trigger.start()
        triggers.append(trigger)
    for trigger in triggers:
        trigger.join()


def _end_with_demo() -> None:
    os.read(0, 1)  # nothing more is written: this is the end of the demo
    os._exit(1)


if __name__ == "__main__":
    main()
