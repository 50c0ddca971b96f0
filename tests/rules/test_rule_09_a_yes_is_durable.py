"""Rule 9: a yes is durable when you hear it. Every call that says yes writes, and its commit waits for the
flush.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_each_yes_raises_synchronous_commit: assert_held secures nothing; synchronous_commit not raised;
  synchronous_commit: remote_write left; synchronous_commit always on
- test_each_yes_waits_for_the_standby: assert_held secures nothing; synchronous_commit not raised
- test_an_immediate_shutdown_loses_nothing: synchronous_commit not raised
"""

from __future__ import annotations

import signal

import pytest

from tests.helpers import Conn, call, value
from tests.rules.conftest import Background, Durable
from tests.rules.tools import (
    KINDS,
    finish,
    grant,
    grant_all,
    outcome,
    reason,
    waits_for,
    yes_calls,
)

SYNC = "select current_setting('synchronous_commit')"
COMMITS = {"off": "on", "local": "on", "remote_write": "on", "on": "on", "remote_apply": "remote_apply"}


@pytest.mark.parametrize(("before", "after"), COMMITS.items())
def test_each_yes_raises_synchronous_commit(a: Conn, before: str, after: str) -> None:
    """For its transaction only; it never lowers it."""
    a.execute("select set_config('synchronous_commit', %s, false)", (before,))
    for label, say_yes in yes_calls(a).items():
        a.execute("begin")
        say_yes(a)
        assert value(a, SYNC) == after, label
        a.execute("commit")
        assert value(a, SYNC) == before, label


def test_a_no_leaves_it_alone(a: Conn, b: Conn) -> None:
    for kind in KINDS:
        grant_all(a, kind)
        b.execute("set synchronous_commit = off")
        b.execute("begin")
        assert reason(b, kind) == "held"
        assert value(b, SYNC) == "off"
        assert outcome(b, "release_lease", token=None) == "False"
        assert value(b, SYNC) == "off"
        b.execute("commit")


def test_the_tables_are_logged(conn: Conn) -> None:
    """CASES 26. The denials, which are no promise to anybody, are the one exception."""
    query = """
        select c.relname from pg_class c
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'S') and c.relpersistence <> 'p'
    """
    assert conn.execute(query).fetchall() == [{"relname": "denial"}]


def test_an_immediate_shutdown_loses_nothing(durable: Durable) -> None:
    """CASES 26: sessions with synchronous_commit off are granted, renew and finish; the server crashes.

    Every answer given is in the tables afterwards; what was held is held, by the same token; tokens still
    grow.
    """
    with durable.open() as a:
        a.execute("set synchronous_commit = off")
        done = grant(a, "key", "done")["token"]
        renewed = grant(a, "lease", "renewed", ttl="1 minute")["token"]
        tokens = {kind: grant(a, kind, f"crash {kind}")["token"] for kind in KINDS}
        until = call(a, "renew_lease", token=renewed, ttl="2 hours")
        assert finish(a, "key", done) == "True"
        last = grant(a, "lease", "last")["token"]
        durable.stop(signal.SIGQUIT)
    durable.start()
    with durable.open() as a, durable.open("pgonce_owner") as owner:
        for kind, token in tokens.items():
            assert call(a, "assert_held", token=token) is True
            if kind != "slots":
                assert reason(a, kind, f"crash {kind}") == "held"
        assert call(a, "assert_held", token=last) is True
        assert reason(a, "key", "done") == "done"
        assert value(owner, "select l.expires_at from pgonce.lease l where l.token = %s", renewed) == until
        assert finish(a, "lease", last) == "True"
        assert grant(a, "lease", "last")["token"] > last
        assert grant(a, "lease", "another")["token"] > last


def test_each_yes_waits_for_the_standby(durable: Durable, background: Background) -> None:
    """The synchronous standby is away: no yes comes back, though the session said synchronous_commit = off.

    A yes that came from a read alone would not wait. A denial does not.
    """
    with durable.open() as a:
        calls = yes_calls(a)
        for kind in KINDS:
            grant_all(a, kind, f"denied {kind}")
        a.execute("set synchronous_commit = off")
        with durable.standby_away() as superuser:
            for label, say_yes in calls.items():
                yes = background(say_yes, a)
                while waits_for(superuser, a) != "SyncRep":
                    assert not yes.done(), label
                superuser.execute("select pg_cancel_backend(%s)", (a.info.backend_pid,))
                yes.result()
            for kind in KINDS:
                assert reason(a, kind, f"denied {kind}") == "held"
