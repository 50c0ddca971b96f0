"""Rule 3, asking answers, holding raises: a denial is a row, a token that holds nothing an error that stops
by itself.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_the_transaction_around_the_work_stops: key: takeover keeps the token; window: takeover keeps the
  token; lease: takeover keeps the token
- test_released_and_finished: release deletes the row; renew revives what was released; renew revives what
  has ended
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.helpers import Conn, psql, value
from tests.rules.tools import (
    KINDS,
    NOTHING_HELD,
    ask,
    expire,
    finish,
    give_up,
    grant,
    grant_all,
    told,
)

SCRIPT = """
select pgonce.assert_held(token) from pgonce.claim_window('nightly', '0 3 * * *');
insert into public.work values ('{}');
"""


def test_a_denial_is_a_row(a: Conn, b: Conn) -> None:
    """In an open transaction, too: the denial does not abort it."""
    for kind in KINDS:
        grant_all(a, kind)
        b.execute("begin")
        claim = ask(b, kind)
        assert (claim["claimed"], claim["reason"], claim["token"]) == (False, "held", None)
        assert claim["expires_at"] is not None
        b.execute("commit")


@pytest.mark.parametrize("token", [None, 0, -1, 2**53, 2**63 - 1])
def test_a_token_that_was_never_granted(a: Conn, token: int | None) -> None:
    """Null, as a denial brings it, and any number."""
    grant(a, "lease")
    grant(a, "key")
    assert told(a, token) == NOTHING_HELD


def test_released_and_finished(a: Conn) -> None:
    """What has ended holds nothing; a lease is no run, and a run no lease, and both say so (22023)."""
    lease, done, failed = grant(a, "lease")["token"], grant(a, "key")["token"], grant(a, "window")["token"]
    assert [finish(a, "lease", lease), finish(a, "key", done), give_up(a, "window", failed)] == ["True"] * 3
    of_run = {**NOTHING_HELD, "release_lease": "22023"}
    assert told(a, lease) == {**NOTHING_HELD, "mark_done": "22023", "mark_failed": "22023"}
    assert told(a, done) == {**of_run, "mark_done": "True"}
    assert told(a, failed) == {**of_run, "mark_failed": "True"}


def test_a_psql_script_stops_by_itself(conn: Conn, dsn_for: Callable[[str], str]) -> None:
    """Two hosts run the same script: the second one does not get to the work."""
    conn.execute("create table public.work (host text)")
    conn.execute("grant insert on public.work to worker")
    psql(dsn_for("worker"), script=SCRIPT.format("A"))
    second = psql(dsn_for("worker"), script=SCRIPT.format("B"), check=False)
    assert second.returncode == 3
    assert "token null holds nothing" in second.stderr
    assert conn.execute("select * from public.work").fetchall() == [{"host": "A"}]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("function", ["assert_held", "renew_lease"])
def test_the_transaction_around_the_work_stops(
    a: Conn, b: Conn, conn: Conn, kind: str, function: str
) -> None:
    """The work is done, the last statement asks for the token, and takes the work back."""
    conn.execute("create table public.work (host text)")
    conn.execute("grant insert on public.work to worker")
    old = grant(a, kind)["token"]
    expire(conn, kind)
    grant(b, kind)  # b: takes over
    a.execute("begin")
    a.execute("insert into public.work values ('A')")
    with pytest.raises(psycopg.Error) as caught:
        a.execute(f"select pgonce.{function}(%s)", (old,))
    assert caught.value.sqlstate == "ON001"
    assert caught.value.diag.message_hint is not None
    a.execute("commit")
    assert value(conn, "select count(*) from public.work") == 0
