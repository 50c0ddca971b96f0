"""Rule 10: every grant writes the row that a competing one would write. In REPEATABLE READ and SERIALIZABLE a
race ends in 40001 or in a right answer, never in two grants.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_an_old_snapshot_is_never_granted_what_is_held: lease: no recheck after the lock
- test_an_old_snapshot_sees_a_holder_that_is_gone: lease: no recheck after the lock
- test_an_open_claim_is_busy_here_too: lease: no recheck after the lock
- test_twenty_at_once: lease: no recheck after the lock
- test_slots_are_never_more_than_asked_for: lease: no recheck after the lock
"""

from __future__ import annotations

import pytest

from tests.helpers import Conn, call, value
from tests.rules.conftest import Open
from tests.rules.tools import (
    KINDS,
    STRICT,
    W1,
    W2,
    ask,
    at_once,
    define,
    expire,
    finish,
    grant,
    grant_all,
    holding_calls,
    in_transaction,
    outcome,
    prepare,
    question,
    reason,
    reasons,
    slow_clock,
    snapshot,
    table,
)

pytestmark = pytest.mark.parametrize("isolation", STRICT)


@pytest.mark.parametrize("before", ["new", "expired", "given up"])
def test_an_old_snapshot_is_never_granted_what_is_held(
    a: Conn, b: Conn, conn: Conn, before: str, isolation: str
) -> None:
    """``b``'s snapshot shows it free; ``a`` is granted and commits; ``b`` asks."""
    for kind in KINDS:
        prepare(a, conn, kind, before)
        snapshot(b, isolation)
        claim = grant_all(a, kind)
        assert reason(b, kind) == "40001"
        b.execute("rollback")
        assert call(a, "assert_held", token=claim["token"]) is True
        assert reason(b, kind) == "held"


def test_an_old_snapshot_sees_a_holder_that_is_gone(a: Conn, b: Conn, isolation: str) -> None:
    """The other way round ``b`` may be told ``held`` for what has ended: never a wrong yes."""
    for kind in KINDS:
        claims = [grant(a, kind) for _ in range(3 if kind == "slots" else 1)]
        snapshot(b, isolation)
        for claim in claims:
            assert finish(a, kind, claim["token"]) == "True"
        assert reason(b, kind) in ("held", "40001")
        b.execute("rollback")


def test_an_open_claim_is_busy_here_too(a: Conn, b: Conn, isolation: str) -> None:
    for kind in KINDS:
        snapshot(a, isolation)
        snapshot(b, isolation)
        grant_all(a, kind)
        assert reason(b, kind) in ("busy", "40001")
        a.execute("commit")
        b.execute("rollback")
        assert reason(b, kind) == "held"


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_at_once(conn: Conn, session: Open, kind: str, isolation: str) -> None:
    """Until everybody has had a definite answer there is one grant (of three slots: three)."""
    slow_clock(conn)
    sessions = [session() for _ in range(20)]
    function, arguments = question(kind)
    answers = []
    for _ in range(2):
        answers += at_once(conn, [in_transaction(one, isolation, function, **arguments) for one in sessions])
    assert set(reasons(answers)) <= {"granted", "held", "busy", "40001"}
    assert 1 <= reasons(answers).count("granted") <= (3 if kind == "slots" else 1)
    held = f"select count(*) from {table(kind)} t where t.expires_at > pgonce.clock()"
    assert value(conn, held) == reasons(answers).count("granted")


def running(owner: Conn) -> int:
    return int(
        value(
            owner, "select count(*) from pgonce.run where state = 'running' and expires_at > pgonce.clock()"
        )
    )


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
@pytest.mark.parametrize(("first", "second"), [(W1, W2), (W2, W1)])
def test_two_windows_of_a_job(
    a: Conn, b: Conn, conn: Conn, overlap: str, first: str, second: str, isolation: str
) -> None:
    """``b``'s snapshot shows no run; ``a`` is granted one window and commits; ``b`` asks for another one.

    The records are two, but the job's row is one: write skew is impossible.
    """
    define(conn, "window", overlap=overlap)
    snapshot(b, isolation)
    grant(a, "window", window_start=first)
    assert reason(b, "window", window_start=second) == "40001"
    b.execute("rollback")
    assert running(conn) == 1


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
def test_a_heartbeat_after_the_snapshot(a: Conn, b: Conn, conn: Conn, overlap: str, isolation: str) -> None:
    """``b``'s snapshot shows the older window expired; its holder renews and commits; ``b`` asks for the
    newer one.
    """
    define(conn, "window", overlap=overlap)
    claim = grant(a, "window", window_start=W1)
    expire(conn, "window")
    snapshot(b, isolation)
    call(a, "renew_lease", token=claim["token"], ttl="1 hour")
    assert reason(b, "window", window_start=W2) == "40001"
    b.execute("rollback")
    assert call(a, "assert_held", token=claim["token"]) is True


def test_allowed_windows_run_side_by_side(a: Conn, b: Conn, conn: Conn, isolation: str) -> None:
    """allow: a right answer is a grant, too; asked again both have one, and the job's row knows both."""
    define(conn, "window", overlap="allow")
    snapshot(b, isolation)
    grant(a, "window", window_start=W1)
    assert reason(b, "window", window_start=W2) in ("granted", "40001")
    b.execute("commit")
    assert reason(b, "window", window_start=W2) in ("granted", "held")
    assert running(conn) == 2
    assert value(conn, "select cardinality(running) from pgonce.job") == 2


@pytest.mark.parametrize(("first", "second"), [(1, 3), (3, 1), (2, 3)])
@pytest.mark.parametrize("before", ["new", "free"])
def test_another_number_of_slots(
    a: Conn, b: Conn, conn: Conn, before: str, first: int, second: int, isolation: str
) -> None:
    """``a`` takes a lease of one, ``b`` one of three at the same name: never both."""
    if before == "free":
        assert finish(a, "lease", grant(a, "lease", slots=second)["token"]) == "True"
    snapshot(b, isolation)
    claim = grant(a, "lease", slots=first)
    assert reason(b, "lease", slots=second) in ("40001", "22023")
    b.execute("rollback")
    assert call(a, "assert_held", token=claim["token"]) is True
    assert value(conn, "select count(*) from pgonce.lease where held and expires_at > pgonce.clock()") == 1


def test_slots_are_never_more_than_asked_for(a: Conn, b: Conn, conn: Conn, isolation: str) -> None:
    """``b``'s snapshot shows three free slots; ``a`` takes two of them and commits; ``b`` asks until it is
    refused.
    """
    for claim in [grant(a, "slots") for _ in range(3)]:
        assert finish(a, "slots", claim["token"]) == "True"
    snapshot(b, isolation)
    taken = [grant(a, "slots")["key"] for _ in range(2)]
    while (late := ask(b, "slots"))["reason"] == "granted":
        taken.append(late["key"])
    assert len(set(taken)) == len(taken) <= 3


def test_a_holder_with_an_old_snapshot(a: Conn, b: Conn, conn: Conn, isolation: str) -> None:
    """``a`` holds it in its snapshot; ``b`` takes over and commits: each call of ``a`` ends in 40001, no
    yes.
    """
    for kind in KINDS:
        for function in holding_calls(kind):
            name = f"{kind} {function}"
            claim = grant_all(a, kind, name)
            expire(conn, kind, name)
            snapshot(a, isolation)
            grant_all(b, kind, name)  # b: takes over
            assert outcome(a, function, token=claim["token"]) == "40001"
            a.execute("rollback")
