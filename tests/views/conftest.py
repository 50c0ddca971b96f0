"""What the tests of the views share: the clock stands at noon of a Monday."""

from __future__ import annotations

import pytest

from tests.functions.holding import NOON
from tests.helpers import Clock, Conn


@pytest.fixture
def clock(clock: Clock, conn: Conn) -> Clock:
    """The database's clock, held still at ``NOON``; a view reads it as whoever looks."""
    conn.execute("grant usage on schema test to public; grant select on test.clock to public")
    clock.set(NOON)
    return clock
