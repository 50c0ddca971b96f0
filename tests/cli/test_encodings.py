"""Databases and environments of other encodings than UTF-8 (case 64)."""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest
from psycopg_pool import ConnectionPool

import pgonce
from pgonce import schema
from tests.cli.conftest import Run

ENCODINGS = ("SQL_ASCII", "LATIN1", "EUC_JP", "UTF8")
NAMES = {"SQL_ASCII": "Übergröße", "LATIN1": "Übergröße", "EUC_JP": "日本語", "UTF8": "日本語 Übergröße"}


@pytest.mark.parametrize("client", [None, "SQL_ASCII", "LATIN1"])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_claimed_denied_done(
    run: Run, encoded_dsn: Callable[[str], str], encoding: str, client: str | None
) -> None:
    """Seen to fail: migrate ended in a traceback, and reasons that came as bytes in the wrong exit status."""
    dsn, name = encoded_dsn(encoding), NAMES[encoding]
    env = {"PGCLIENTENCODING": client} if client else {}

    def say(*arguments: str) -> tuple[int, str]:
        done = run(*arguments, dsn=dsn, env=env)
        return done.returncode, done.stderr

    assert say("migrate") == (0, "")
    assert say("window", name, "@yearly", "--owner", name, "--", "true") == (0, "")
    status, text = say("window", name, "@yearly", "-v", "--", "false")
    assert status == 0
    assert f"denied: {name}" in text
    assert "done" in text
    assert say("key", name, name, "--", "false") == (1, "")
    assert say("key", name, name, "--", "true")[0] == 75
    assert say("lease", name, "--owner", name, "--", "true") == (0, "")
    with pgonce.lease(dsn, name, owner=name):
        status, text = say("lease", name, "-v", "--", "true")
    assert status == 75
    assert f"held by {name}" in text


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_our_own_connections(
    encoded_dsn: Callable[[str], str], encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Made from a string, a pool or a function, they speak UTF-8 whatever those say."""
    monkeypatch.setenv("PGCLIENTENCODING", "SQL_ASCII")
    dsn, name = encoded_dsn(encoding), NAMES[encoding]
    schema.migrate(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        schema.check(conn)
    with ConnectionPool(dsn, min_size=1, max_size=1, open=True) as pool:
        for n in range(3):
            way = (dsn, pool, lambda: psycopg.connect(dsn))[n]
            with pgonce.operation(way, name, f"{name} {n}") as run:
                assert run.claim.name == name
                run.result = {"name": name}
            with pytest.raises(pgonce.Denied) as denied, pgonce.operation(way, name, f"{name} {n}"):
                pytest.fail("it has been done")
            assert denied.value.claim.result == {"name": name}
