"""Rule 11: nothing depends on the session: not on the pooler, the settings, or what else lies in the
database.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_settings_of_the_session: the key depends on TimeZone
- test_hostile_objects: claim_key without search_path; claim_window without search_path; acquire_lease
  without search_path
- test_hostile_objects_and_a_reader: _may_see without search_path
- test_read_only_comes_first: read-only comes late; read-only: held is answered; read-only window not
  refused
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tests.helpers import Clock, Conn, Row, call, value
from tests.rules.conftest import Open
from tests.rules.tools import KINDS, NOTHING_HELD, RUNS, ask, finish, grant, outcome, question, reason

# PgBouncer, in transaction mode: each call may run on another server connection.


@pytest.mark.parametrize("kind", KINDS)
def test_one_winner_through_pgbouncer(pooled: Open, kind: str) -> None:
    """CASES 22: eight clients on two server connections ask for twenty things each; then the winners go
    on.
    """
    names = [f"n{n}" for n in range(20)]

    def client(one: Conn) -> list[Row]:
        return [ask(one, kind, name) for name in names]

    clients = [pooled() for _ in range(8)]
    with ThreadPoolExecutor(len(clients)) as pool:
        answers = list(pool.map(client, clients))
    for of_one_name in zip(*answers, strict=True):
        winners = [claim["token"] for claim in of_one_name if claim["reason"] == "granted"]
        assert 1 <= len(winners) <= (3 if kind == "slots" else 1)
        assert {claim["reason"] for claim in of_one_name} <= {"granted", "held", "busy"}
        assert call(clients[0], "renew_lease", token=winners[0]) is not None
        assert finish(clients[1], kind, winners[0]) == "True"


def test_one_transaction_through_pgbouncer(pooled: Open) -> None:
    """Rule 8, and what it sets stays in the transaction: the next client on that connection does not inherit
    it.
    """
    for kind in RUNS:
        a, b = pooled(), pooled()
        a.execute("begin")
        claim = grant(a, kind)
        assert value(a, "select current_setting('idle_in_transaction_session_timeout')") == "1h"
        assert reason(b, kind) == "busy"
        assert finish(a, kind, claim["token"]) == "True"
        a.execute("commit")
        for client in (a, b):
            assert value(client, "select current_setting('idle_in_transaction_session_timeout')") == "0"
            assert value(client, "select current_setting('synchronous_commit')") == "off"
        assert reason(b, kind) == "done"


def test_settings_that_another_client_left_behind(clock: Clock, connect: Open, pooled: Open) -> None:
    """They leak in transaction mode, and change nothing."""
    clock.set(NIGHT)
    a, b = pooled(), pooled()
    for client in (a, b):  # both server connections are taken at once
        client.execute("begin")
    for client in (a, b):
        client.execute("set timezone = 'Pacific/Apia'")
        client.execute("set search_path = ''")
        client.execute("set synchronous_commit = local")
    for client in (a, b):
        client.execute("commit")
    assert story(pooled(), "pooled") == story(connect("worker"), "direct")


# Settings, and hostile objects

NIGHT = "2026-03-29 00:59:30Z"  # half a minute before Berlin's clocks jump over 02:30

CLAIM = """
    select c.reason, c.key, c.attempt, c.owner, extract(epoch from c.expires_at)::text as expires_at,
        extract(epoch from c.window_start)::text as window_start,
        extract(epoch from c.window_end)::text as window_end,
        extract(epoch from c.retry_at)::text as retry_at, c.result::text, c.token
    from pgonce.
"""


def story(one: Conn, label: str) -> list[Any]:
    """What a host is told in a night in which the clock stands still, in words that no setting writes
    differently.
    """
    said: list[Any] = []

    def say(query: str, *parameters: Any) -> Row:
        try:
            rows = one.execute(query, parameters).fetchall()
        except psycopg.Error as error:
            rows = [{"error": error.sqlstate}]
        said.append([{name: told for name, told in row.items() if name != "token"} for row in rows])
        return rows[0] if rows else {}

    for schedule, zone in (
        ("30 2 * * *", "Europe/Berlin"),
        ("*/10 9-17 * * MON-FRI", "America/New_York"),
        ("0 0 LW JAN,Jul *", "Australia/Lord_Howe"),
        ("every 36 hours", "UTC"),
        ("@monthly", "Pacific/Apia"),
    ):
        window = (f"{label} {schedule}", schedule, zone)
        token = say(CLAIM + "claim_window(%s, %s, %s, ttl => '1 day 2 hours') c", *window)["token"]
        say(CLAIM + "claim_window(%s, %s, %s) c", *window)
        say("select extract(epoch from pgonce.renew_lease(%s, '49 hours'))::text as until", token)
        say("select pgonce.mark_failed(%s, 'no', '1 hour 30 minutes')", token)
        say(CLAIM + "claim_window(%s) c", window[0])
        say(
            "select extract(epoch from window_start)::text as s from pgonce.window_at(%s, %s)", schedule, zone
        )
        span = ("2026-03-01 00:00:00Z", "2026-04-01 00:00:00Z")
        say(
            "select extract(epoch from window_start)::text as s from pgonce.windows(%s, %s, %s, %s)",
            schedule,
            zone,
            *span,
        )
    key = "claim_key(%s, 'k', '90 minutes', 'me', 'f') c"
    token = say(CLAIM + key, label)["token"]
    say("select pgonce.assert_held(%s)", token)
    say("select pgonce.mark_done(%s, %s, '2 days')", token, '{"b": [1.50, "ü"], "a": null}')
    say(CLAIM + key, label)
    say(CLAIM + "claim_key(%s, 'k', '90 minutes', 'me', 'g') c", label)
    token = say(CLAIM + "acquire_lease(%s, '5 minutes', slots => 2, min_hold => '10 minutes') c", label)[
        "token"
    ]
    say("select pgonce.release_lease(%s)", token)
    say(CLAIM + "acquire_lease(%s, '5 minutes', slots => 2) c", label)
    say(CLAIM + "acquire_lease(%s, '5 minutes', slots => 2) c", label)
    say("select pgonce.key_of(%s, 'v1')", '{"b": [1.50, "ü"], "a": null}')
    say("select pgonce.renew_lease(1)")
    say("select pgonce.claim_key(%s, 'k\x01', '1 month')", label)
    return said


SETTINGS: list[dict[str, str]] = [
    {"TimeZone": "Europe/Berlin"},  # where a day of this night's has 23 hours
    {"TimeZone": "Pacific/Apia", "DateStyle": "SQL, DMY", "IntervalStyle": "sql_standard"},
    {"TimeZone": "America/Los_Angeles", "DateStyle": "German", "IntervalStyle": "iso_8601"},
    {"TimeZone": "Australia/Lord_Howe", "DateStyle": "Postgres, MDY", "IntervalStyle": "postgres_verbose"},
    {"TimeZone": "<+03:30>-3:30", "DateStyle": "ISO, YMD"},
    {"search_path": ""},
    {"search_path": "pg_temp, pgonce"},
    {"standard_conforming_strings": "off", "escape_string_warning": "off", "backslash_quote": "on"},
    {
        "array_nulls": "off",
        "transform_null_equals": "on",
        "extra_float_digits": "-15",
        "bytea_output": "escape",
    },
    {"plpgsql.extra_errors": "all"},
    {
        "plan_cache_mode": "force_generic_plan",
        "enable_indexscan": "off",
        "enable_bitmapscan": "off",
        "row_security": "off",
    },
    {"default_transaction_isolation": "serializable", "lock_timeout": "1ms"},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=lambda settings: " ".join(settings.values()))
def test_settings_of_the_session(session: Open, clock: Clock, settings: dict[str, str]) -> None:
    """CASES 37, 46: the same story as in a session without any.

    Seen to fail with: durations keep their days (Europe/Berlin).
    """
    clock.set(NIGHT)
    plain, changed = session(), session()
    for name, setting in settings.items():
        changed.execute("select set_config(%s, %s, false)", (name, setting))
    assert story(changed, "changed") == story(plain, "plain")


# A copy of every function that pgonce's bodies mention, and of every operator on their types: each raises.
HOSTILE = """
    do $$
    declare
        v_what record;
        v_count integer := 0;
    begin
        for v_what in
            select p.proname, pg_get_function_identity_arguments(p.oid) as arguments,
                   pg_get_function_result(p.oid) as result
            from pg_proc p
            where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and p.provariadic = 0
              and not p.prorettype = any (array['internal', 'trigger', 'cstring', '"any"']::regtype[])
              and not p.proargtypes::oid[] && array['internal', 'cstring', '"any"']::regtype[]::oid[]
              and p.proname !~ '^(substring|overlay|position|extract|overlaps|normalize|timezone)$'
              and exists (select from pg_proc o where o.pronamespace = 'pgonce'::regnamespace
                          and o.prosrc ~ ('\\m' || p.proname || '\\('))
        loop
            execute format('create function public.%I(%s) returns %s language plpgsql as %L', v_what.proname,
                v_what.arguments, v_what.result, 'begin raise exception ''a hostile function ran''; end');
            v_count := v_count + 1;
        end loop;
        for v_what in
            select o.oprname, o.oprleft::regtype as l, o.oprright::regtype as r,
                   o.oprresult::regtype as result
            from pg_operator o
            where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprkind = 'b' and o.oprcode <> 0
              and array[o.oprleft, o.oprright] <@ array['int4', 'int8', 'text', 'oid', 'name', 'timestamptz',
                  'timestamp', 'interval', 'numeric', 'float8', 'uuid', 'jsonb', 'bool', 'anyarray',
                  'anycompatible', 'anycompatiblearray']::regtype[]::oid[]
        loop
            v_count := v_count + 1;
            execute format('create function public.hostile_%s(%s, %s) returns %s language plpgsql as %L',
                v_count, v_what.l, v_what.r, v_what.result,
                'begin raise exception ''a hostile operator ran''; end');
            execute format('create operator public.%s (leftarg = %s, rightarg = %s, function = hostile_%s)',
                v_what.oprname, v_what.l, v_what.r, v_count);
        end loop;
        if v_count < 300 then
            raise exception 'only % hostile objects', v_count;
        end if;
    end
    $$
"""


def hostile(one: Conn) -> None:
    """What public holds comes first, and temporary tables have the names of ours and the catalog's."""
    for name in (
        "job",
        "run",
        "lease",
        "denial",
        "claim",
        "pg_roles",
        "pg_namespace",
        "pg_timezone_names",
        "pg_proc",
    ):
        one.execute(f"create temp table {name} (nothing int)")
    one.execute("set search_path = pg_temp, public, pg_catalog")


def test_hostile_objects(conn: Conn, session: Open, clock: Clock) -> None:
    """CASES 46: functions, operators and tables of the same names, before pg_catalog in the search path."""
    clock.set(NIGHT)
    conn.execute(HOSTILE)
    plain, attacked = session(), session()
    hostile(attacked)
    with pytest.raises(psycopg.errors.RaiseException, match="hostile operator"):
        attacked.execute("select 1 = 1")
    assert story(attacked, "attacked") == story(plain, "plain")


def test_hostile_objects_and_a_reader(conn: Conn, a: Conn, session: Open) -> None:
    """The views, too, say the same: a reader's own operators do not show a result that is not the
    reader's.
    """
    call(a, "mark_done", token=grant(a, "key")["token"], result='"secret"')
    grant(a, "lease")
    conn.execute(HOSTILE)
    plain, attacked = session("reader"), session("reader")
    hostile(attacked)
    for view in ("runs", "leases"):
        query = f"select * from pgonce.{view}"
        assert attacked.execute(query).fetchall() == plain.execute(query).fetchall() != []


# A read-only server: 25006 with a hint, before any other complaint. (A hot standby: see test_interleavings.)


@pytest.mark.parametrize("function", ["claim_window", "claim_key", "acquire_lease"])
def test_read_only_comes_first(a: Conn, function: str) -> None:
    """With no sensible argument at all, with good ones, and for what is held or done already."""
    nothing: Row = dict.fromkeys(
        question({"claim_window": "window", "claim_key": "key"}.get(function, "lease"))[1]
    )
    for kind in KINDS:
        finish(a, kind, grant(a, kind, f"done {kind}")["token"])
        grant(a, kind, f"held {kind}")
    for begin in ("begin read only", "set default_transaction_read_only = on"):
        a.execute(begin)
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as caught:
            call(a, function, **nothing)
        assert "target_session_attrs=read-write" in str(caught.value.diag.message_hint)
        a.execute("rollback")
    for kind in KINDS:
        for name in ("done", "held", "new"):
            assert outcome(a, question(kind)[0], **question(kind, f"{name} {kind}")[1]) == "25006"


@pytest.mark.parametrize("begin", ["begin read only", "set default_transaction_read_only = on"])
def test_read_only_for_whoever_holds(a: Conn, begin: str) -> None:
    """Renewing, asserting, releasing and finishing: the same error with the same hint, whatever the token.

    Seen to fail: release_lease said false of a token that holds nothing, and the others ON001 or 25006 bare.
    """
    tokens = {kind: grant(a, kind)["token"] for kind in KINDS}
    a.execute(begin)
    for function in NOTHING_HELD:
        for token in (None, 1, *tokens.values()):
            a.execute("savepoint s" if begin.startswith("begin") else "select 1")
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction) as caught:
                call(a, function, token=token)
            assert "target_session_attrs=read-write" in str(caught.value.diag.message_hint)
            a.execute("rollback to savepoint s" if begin.startswith("begin") else "select 1")
