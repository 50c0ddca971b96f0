"""sql/ is the truth a reader trusts: whichever way the schema comes in, it is the one of sql/install.sql."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest

from pgonce import schema
from tests.helpers import SQL, psql
from tests.migrations.catalog import read
from tests.migrations.host import Host


def by_host(dsn: str, folder: Path) -> None:
    Host(folder, dsn).upgrade()


def by_host_offline(dsn: str, folder: Path) -> None:
    psql(dsn, script=Host(folder, dsn).offline())


def by_migrate(dsn: str, folder: Path) -> None:
    assert schema.migrate(dsn) == (0, schema.newest())


def by_psql(dsn: str, folder: Path) -> None:
    psql(dsn, script=schema.sql())


def by_driver(dsn: str, folder: Path) -> None:
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(schema.sql().encode())


@pytest.mark.parametrize("door", [by_host, by_host_offline, by_migrate, by_psql, by_driver])
def test_sql_is_what_migrations_build(
    door: Callable[[str, Path], None], create_database: Callable[..., str], tmp_path: Path
) -> None:
    """Seen to fail with a comment, a grant, a fillfactor and a space in a body changed in 0001.up.sql."""
    installed, migrated = create_database(), create_database()
    psql(installed, "-f", SQL / "install.sql")
    door(migrated, tmp_path)
    assert read(migrated) == read(installed)


def test_what_came_in_offline_works(empty_dsn: str, tmp_path: Path) -> None:
    """Case 45: what Alembic's offline mode is known to change stands in messages, casts and formats."""
    by_host_offline(empty_dsn, tmp_path)
    script = """
        do $$
        declare
            v_claim pgonce.claim;
        begin
            v_claim := pgonce.claim_window('nightly', '0 3 * * *', timezone => 'Europe/Berlin');
            assert v_claim.claimed and v_claim.key ~ '^\\d{4}-\\d\\d-\\d\\dT0[12]:00:00Z$', v_claim;
            assert pgonce.mark_done(v_claim.token, '{"a:b": "100 %"}');
            v_claim := pgonce.claim_window('nightly');
            assert v_claim.reason = 'done' and v_claim.result = '{"a:b": "100 %"}', v_claim;
            v_claim := pgonce.claim_key('a:b', '50 %', '1 minute', fingerprint => ':x %s');
            assert v_claim.claimed and v_claim.name = 'a:b' and v_claim.key = '50 %', v_claim;
            assert pgonce.renew_lease(v_claim.token) > v_claim.expires_at;
            assert pgonce.mark_failed(v_claim.token, '100 % :y');
            v_claim := pgonce.acquire_lease('deploy', '1 minute', slots => 2);
            assert pgonce.assert_held(v_claim.token);
            assert (select count(*) from pgonce.runs) = 2;
            assert exists (select from pgonce.leases where name = 'deploy');
            assert pgonce.release_lease(v_claim.token);
            assert pgonce.key_of('{"a": 1}') = pgonce.key_of('{"a":1.0}');
            assert '2026-01-03Z' = (select window_end from pgonce.window_at('@daily', at => '2026-01-02Z'));
            assert 31 = (select count(*) from pgonce.windows('@daily', 'UTC', '2026-01-01Z', '2026-02-01Z'));
            assert pgonce.schema_version() >= 1;
        end
        $$;
    """
    psql(empty_dsn, script=script)


@pytest.mark.parametrize("door", ["online", "offline"])
def test_a_statement_arrives_as_it_is(
    door: str, empty_dsn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen to fail without the backslash that keeps SQLAlchemy from reading `:name` as a parameter.

    A percent sign does not arrive offline: no file has one (test_conventions).
    """
    odd = r"a:b :name ::text := [1:n] \ \:x {y} ?"
    script = f"create schema pgonce;\ncomment on schema pgonce is '{odd}';\n"
    monkeypatch.setattr(schema, "_read", lambda name: script)
    host = Host(tmp_path, empty_dsn)
    if door == "online":
        host.upgrade("a1")
    else:
        psql(empty_dsn, script=host.offline("a1"))
    assert ("comment", "pgonce", odd) in read(empty_dsn)
