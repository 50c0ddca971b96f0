"""What the tests of the functions share: the clock stands at noon of a Monday."""

from __future__ import annotations

import pytest

from tests.functions.holding import NOON
from tests.helpers import Clock


@pytest.fixture
def clock(clock: Clock) -> Clock:
    """The database's clock, held still at ``NOON``."""
    clock.set(NOON)
    return clock
