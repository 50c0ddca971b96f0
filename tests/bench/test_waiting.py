"""How soon a freed lease is taken by one of ten who wait for it."""

from __future__ import annotations

import statistics
import threading
import time

import pytest

import pgonce
from tests.helpers import Conn

WAITERS = 10


@pytest.mark.bench
def test_waiting_for_a_release(dsn: str, conn: Conn) -> None:
    """Each of them takes it once, works for a second, and releases it; the last one waits alone."""
    freed = [0.0]
    waits: list[float] = []

    def wait_and_work() -> None:
        with pgonce.lease(dsn, "x", wait="2 minutes"):
            waits.append(time.monotonic() - freed[0])
            time.sleep(1.0)
            freed[0] = time.monotonic()

    first = pgonce.acquire_lease(conn, "x", "1 minute")
    waiters = [threading.Thread(target=wait_and_work) for _ in range(WAITERS)]
    for waiter in waiters:
        waiter.start()
    time.sleep(3.0)  # until all of them ask at their slowest
    freed[0] = time.monotonic()
    pgonce.release_lease(conn, first.token)
    for waiter in waiters:
        waiter.join()
    assert len(waits) == WAITERS
    median = statistics.median(waits)
    print(f"\n{WAITERS} waiters: median {median * 1000:.0f} ms, longest {max(waits) * 1000:.0f} ms")
