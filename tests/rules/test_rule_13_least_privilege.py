"""Rule 13: nothing is PUBLIC's; a worker executes functions and touches no table; a token works for its own
role.

Seen to fail, each with these mutants of sql/ (what was broken in it):

- test_another_worker_cannot_use_the_token: any role's token; assert_held for the same role only
- test_not_the_other_way_round: any role's token; assert_held for the same role only
- test_set_role: any role's token; no members; assert_held for the same role only
- test_set_session_authorization: any role's token; no members; assert_held for the same role only
- test_a_role_that_is_gone_matches_nobody: any role's token; not the owner's members; assert_held for the same
  role only
- test_a_result_is_shown_to_those_for_whom_the_token_would_work: any role's token; no members; not the
  owner's members; a denial shows every result
- test_a_reader_cannot_look_behind_the_view: any role's token; the view shows every result
- test_a_takeover_by_another_role: any role's token; assert_held for the same role only
- test_members_and_the_owner_can: no members; members by usage, not membership; not the owner's members
- test_who_may_execute_what: execute for PUBLIC; worker may define
- test_public_has_nothing: execute for PUBLIC; usage of the schema for PUBLIC
- test_who_may_touch_what: worker may read the runs
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row

from pgonce import schema
from pgonce._embedded import Server, find_bindir
from tests.functions.privileges import may
from tests.helpers import OWNER, SQL, Conn, call, psql, value
from tests.rules.conftest import Open
from tests.rules.tools import (
    KINDS,
    NOTHING_HELD,
    RUNS,
    ask,
    expire,
    finish,
    grant,
    grant_all,
    holding_calls,
    outcome,
    stored,
)

WORKER = {
    "claim_window",
    "claim_key",
    "acquire_lease",
    "renew_lease",
    "release_lease",
    "mark_done",
    "mark_failed",
    "assert_held",
    "window_at",
    "windows",
    "key_of",
    "schema_version",
}
READER = {"clock", "_may_see"}  # what the views call
OWN = {"define_job", "grant_worker", "grant_reader", "clock"}

MAY_EXECUTE = {"worker": WORKER, "worker2": WORKER, "reader": READER, "stranger": set()}


def functions(conn: Conn) -> list[tuple[str, str]]:
    """Each function of the schema, and a call of it with nothing but nulls."""
    rows = conn.execute("""
        select p.proname as name, format('select pgonce.%I(%s)', p.proname,
            (select string_agg('null::' || format_type(t.type, null), ', ' order by t.number)
             from unnest(p.proargtypes) with ordinality t (type, number))) as call
        from pg_proc p where p.pronamespace = 'pgonce'::regnamespace order by 1
    """).fetchall()
    return [(row["name"], row["call"]) for row in rows]


@pytest.mark.parametrize("role", MAY_EXECUTE)
def test_who_may_execute_what(conn: Conn, session: Open, role: str) -> None:
    """Every function there is, called: permission denied, or anything but that."""
    one = session(role)
    allowed = set()
    for name, query in functions(conn):
        try:
            one.execute(query)
            allowed.add(name)
        except psycopg.errors.InsufficientPrivilege:
            pass
        except psycopg.Error:
            allowed.add(name)
    assert allowed == MAY_EXECUTE[role]
    assert value(conn, "select count(*) from pgonce.job") == 0


@pytest.mark.parametrize("role", MAY_EXECUTE)
def test_who_may_touch_what(conn: Conn, a: Conn, session: Open, role: str) -> None:
    """CASES 47: no table and no sequence for anybody but the owner, and the views for the reader alone.

    Seen to fail: the types of the tables were PUBLIC's, see below.
    """
    for kind in RUNS:
        grant(a, kind)
    before = stored(conn)
    one = session(role)
    relations = """
        select relname, relkind from pg_class
        where relnamespace = 'pgonce'::regnamespace and relkind in ('r', 'v', 'S')
    """
    for relation in conn.execute(relations).fetchall():
        name, kind = relation["relname"], relation["relkind"]
        queries = [f"select * from pgonce.{name}"]
        if kind != "S":
            column = value(
                conn,
                "select attname from pg_attribute where attrelid = %s::regclass and attnum = 1",
                f"pgonce.{name}",
            )
            queries += [
                f"insert into pgonce.{name} default values",
                f"update pgonce.{name} set {column} = null",
                f"delete from pgonce.{name}",
                f"select from pgonce.{name} for update",
                f"create rule r as on insert to pgonce.{name} do also nothing",
                f"create temp table t (column_of_its_type pgonce.{name})",
            ]
            queries += [f"truncate pgonce.{name}"] if kind == "r" else []
        else:
            queries += [f"select nextval('pgonce.{name}')", f"select setval('pgonce.{name}', 1)"]
        for query in queries:
            allowed = role == "reader" and kind == "v" and query.startswith("select *")
            assert said(one, query) == (None if allowed else "42501"), query
    for query in (
        "create table pgonce.t ()",
        "create function pgonce.f() returns int language sql as 'select 1'",
    ):
        assert said(one, query) == "42501", query
    assert stored(conn) == before


def said(one: Conn, query: str) -> str | None:
    """The SQLSTATE, and nothing if it worked."""
    try:
        one.execute(query)
    except psycopg.Error as error:
        return error.sqlstate
    return None


def others_rights(conn: Conn) -> set[tuple[str, str, str]]:
    """Each privilege of somebody but the owner, granted or by default: kind of object, name, who."""
    query = """
        select 'schema' as what, nspname::text as name, coalesce(nspacl, acldefault('n', nspowner)) as acl
        from pg_namespace where nspname = 'pgonce'
        union all
        select 'sequence', relname, coalesce(relacl, acldefault('s', relowner))
        from pg_class where relnamespace = 'pgonce'::regnamespace and relkind = 'S'
        union all
        select 'table', relname, coalesce(relacl, acldefault('r', relowner))
        from pg_class where relnamespace = 'pgonce'::regnamespace and relkind in ('r', 'v')
        union all
        select 'column', attname, attacl
        from pg_attribute join pg_class c on c.oid = attrelid where relnamespace = 'pgonce'::regnamespace
        union all
        select 'function', proname, coalesce(proacl, acldefault('f', proowner))
        from pg_proc where pronamespace = 'pgonce'::regnamespace
        union all
        select 'type', typname, coalesce(typacl, acldefault('T', typowner))
        from pg_type where typnamespace = 'pgonce'::regnamespace and typelem = 0
    """
    rows = conn.execute(f"""
        select distinct
            what, name, case a.grantee when 0 then 'public' else a.grantee::regrole::text end as who
        from ({query}) p, aclexplode(p.acl) a
        where a.grantee <> (select nspowner from pg_namespace where nspname = 'pgonce')
    """).fetchall()
    return {(row["what"], row["name"], row["who"]) for row in rows}


def test_public_has_nothing(conn: Conn) -> None:
    """No privilege on schema, table, column, sequence, function, or type, neither granted nor by default.

    Seen to fail: the row types of tables and views kept PostgreSQL's default, usage for PUBLIC. A worker
    could
    make a table with a column of the type pgonce.run, which stood in the way of ``alter table pgonce.run``.
    """
    rights = others_rights(conn)
    assert "worker" in {who for _, _, who in rights}
    assert "public" not in {who for _, _, who in rights}


# Whose token works for whom


@pytest.fixture
def role(superuser: Conn, pg_server: Server, dbname: str) -> Iterator[Callable[..., str]]:
    """A function that creates a worker role for this test, and drops it in the end."""
    made: list[str] = []

    def create(name: str, attributes: str = "", *, member_of: str | None = None, worker: bool = True) -> str:
        full = f"{dbname}_{name}"
        superuser.execute(f"create role {quoted(full)} login password '{pg_server.password}' {attributes}")
        made.append(full)
        if member_of is not None:
            superuser.execute(f"grant {quoted(member_of)} to {quoted(full)}")
        if worker:
            call(superuser, "grant_worker", role=full)
        return full

    yield create
    for name in reversed(made):
        if value(superuser, "select exists (select from pg_roles where rolname = %s)", name):
            drop(superuser, name)


def drop(superuser: Conn, name: str) -> None:
    superuser.execute(f"drop owned by {quoted(name)}")
    superuser.execute(f"drop role {quoted(name)}")


def quoted(name: str) -> str:
    return sql.Identifier(name).as_string()


def works(one: Conn, kind: str, token: int) -> bool:
    """Whether the token works for this session: the heartbeat says so, and where it does not, all the others
    agree.
    """
    if outcome(one, "renew_lease", token=token) != "ON001":
        return True
    for function in holding_calls(kind):
        assert outcome(one, function, token=token) == (
            NOTHING_HELD[function] if function != "assert_held" else "True"
        )
    return False


def test_another_worker_cannot_use_the_token(a: Conn, session: Open) -> None:
    """CASES 11: same owner label, same everything. assert_held is the exception (CASES 57)."""
    for kind in KINDS:
        claim = grant(a, kind, owner="host:1")
        assert not works(session("worker2"), kind, claim["token"])
        assert call(a, "assert_held", token=claim["token"]) is True
        assert finish(a, kind, claim["token"]) == "True"


def test_members_and_the_owner_can(
    a: Conn, conn: Conn, superuser: Conn, session: Open, role: Callable[..., str]
) -> None:
    """Members of the role it was granted to (inheriting or not), the schema's owner, its members, a
    superuser.
    """
    sessions = [
        session(role("member", member_of="worker")),
        session(role("distant", "noinherit", member_of="worker")),
        conn,
        session(role("owners", member_of=OWNER)),
        superuser,
        session(),
    ]
    for kind in KINDS:
        for n, one in enumerate(sessions):
            token = grant(a, kind, f"{kind} {n}")["token"]
            assert outcome(one, "renew_lease", token=token) not in ("ON001", "False"), n
            assert finish(one, kind, token) == "True", n


def test_not_the_other_way_round(a: Conn, session: Open, role: Callable[..., str]) -> None:
    """A member's token does not work for the group."""
    member = session(role("member", member_of="worker"))
    for kind in KINDS:
        assert not works(a, kind, grant(member, kind)["token"])


def test_set_role(session: Open, role: Callable[..., str]) -> None:
    """The role of ``set role`` counts, for granting and for using, also with a name that must be quoted."""
    group = role('Odd "group"')
    one, two = session(role("one", member_of=group)), session(role("two", member_of=group))
    for kind in KINDS:
        one.execute(f"set role {quoted(group)}")
        shared = grant(one, kind, f"{kind} shared")["token"]
        assert works(two, kind, shared)  # a member, in its own name
        one.execute("reset role")
        own = grant(one, kind, f"{kind} own")["token"]
        one.execute(f"set role {quoted(group)}")
        assert not works(one, kind, own)
        two.execute(f"set role {quoted(group)}")
        assert not works(two, kind, own)
        one.execute("set role none")
        two.execute("reset role")
        assert works(one, kind, own)


def test_set_session_authorization(superuser: Conn, conn: Conn) -> None:
    """A superuser who has become a worker is one."""
    for kind in KINDS:
        superuser.execute("set session authorization worker2")
        token = grant(superuser, kind)["token"]
        superuser.execute("set session authorization worker")
        assert not works(superuser, kind, token)
        superuser.execute("set session authorization default")
        assert works(superuser, kind, token)


@pytest.mark.parametrize("how", ["dropped", "renamed"])
def test_a_role_that_is_gone_matches_nobody(
    a: Conn, conn: Conn, superuser: Conn, session: Open, role: Callable[..., str], how: str
) -> None:
    """But the owner's members can still finish what it began. The record belongs to the name."""
    name = role("leaver")
    leaver = session(name)
    tokens = {kind: grant(leaver, kind)["token"] for kind in KINDS}
    if how == "dropped":
        leaver.close()
        drop(superuser, name)
        sessions = [a]
    else:
        superuser.execute(f"alter role {quoted(name)} rename to {quoted(role('other', worker=False) + '2')}")
        sessions = [a, leaver]
    for kind, token in tokens.items():
        for one in sessions:
            assert not works(one, kind, token)
        assert works(conn, kind, token)
    if how == "renamed":
        superuser.execute(f"alter role {quoted(name[:-6] + 'other2')} rename to {quoted(name)}")
        for kind, token in tokens.items():
            assert works(leaver, kind, token)


def test_a_role_that_was_set_and_has_another_name_now(
    superuser: Conn, pg_server: Server, session: Open, role: Callable[..., str]
) -> None:
    """Whoever has set a role that is then renamed is not taken for the next one of that name: the setting
    keeps the old name.

    Seen to fail: the name was looked up as it stood in the setting, by oid as by name.
    """
    group = role("group")
    one = session(role("one", member_of=group))
    one.execute(f"set role {quoted(group)}")
    grant(one, "lease", "before")
    superuser.execute(f"alter role {quoted(group)} rename to {quoted(group + '2')}")
    superuser.execute(f"create role {quoted(group)} login password '{pg_server.password}'")
    call(superuser, "grant_worker", role=group)
    try:
        namesake = session(group)
        for kind in KINDS:
            token = grant(namesake, kind)["token"]
            assert {outcome(one, function, token=token) for function in holding_calls(kind)} == {
                "42501",
                "True",  # assert_held
            }
            assert works(namesake, kind, token)
            assert ask(one, kind, f"{kind} anew")["reason"] == "42501"
            if kind in RUNS:
                call(namesake, "mark_done", token=token, result='{"secret": 1}')
                denial = ask(one, kind)
                assert denial["reason"] == "42501" or denial["result"] is None
        one.execute("reset role")
        grant(one, "lease", "after")
    finally:
        drop(superuser, group)
        superuser.execute(f"alter role {quoted(group + '2')} rename to {quoted(group)}")


def test_a_denial_tells_the_holder_but_no_token(a: Conn, session: Open) -> None:
    for kind in KINDS:
        grant_all(a, kind, owner="host:1")
        denial = ask(session("worker2"), kind)
        assert (denial["owner"], denial["token"], denial["reason"]) == ("host:1", None, "held")


# Results


def test_a_result_is_shown_to_those_for_whom_the_token_would_work(
    a: Conn, conn: Conn, session: Open, role: Callable[..., str]
) -> None:
    """In a denial and in the view."""
    secret = {"secret": 1}
    call(conn, "grant_reader", role="worker2")
    member, other = session(role("member", member_of="worker")), session("worker2")
    for kind in RUNS:
        call(a, "mark_done", token=grant(a, kind)["token"], result=json.dumps(secret))
        for one, result in ((a, secret), (member, secret), (conn, secret), (other, None)):
            denial = ask(one, kind)
            assert (denial["reason"], denial["result"]) == ("done", result)
        for reader, result in ((other, None), (session("reader"), None), (conn, secret)):
            assert value(reader, "select result from pgonce.runs where name = %s", kind) == result


def test_a_reader_cannot_look_behind_the_view(a: Conn, session: Open, conn: Conn) -> None:
    """A cheap function of the reader's own in the condition is shown what the view shows, and not more."""
    call(a, "mark_done", token=grant(a, "key")["token"], result='{"secret": 1}')
    conn.execute("grant create on schema public to reader")
    reader = session("reader")
    reader.execute("""
        create function public.peek(jsonb) returns boolean language plpgsql cost 0.0000001 as $$
        begin raise notice 'seen: %', coalesce($1::text, 'nothing'); return true; end $$
    """)
    seen: list[str] = []
    reader.add_notice_handler(lambda notice: seen.append(str(notice.message_primary)))
    assert len(reader.execute("select * from pgonce.runs where public.peek(result)").fetchall()) == 1
    assert seen == ["seen: nothing"]


# Installing


def by_psql(dsn: str) -> None:
    psql(dsn, "-f", SQL / "install.sql")


def by_migrate(dsn: str) -> None:
    schema.migrate(dsn)


@pytest.mark.parametrize("install", [by_psql, by_migrate])
def test_default_privileges_open_nothing(empty_dsn: str, install: Callable[[str], None]) -> None:
    """CASES 61: what the installer's default privileges gave is taken away.

    Seen to fail: only PUBLIC's rights were; the schema was refused since others might create in it.
    """
    with psycopg.connect(empty_dsn, autocommit=True, row_factory=dict_row) as owner:
        for kind in ("tables", "sequences", "functions", "types", "schemas"):
            owner.execute(f"alter default privileges grant all on {kind} to stranger, public")
            owner.execute(f"alter default privileges grant all on {kind} to reader with grant option")
        install(empty_dsn)
        assert others_rights(owner) == set()
        assert may(owner, "stranger") == set()
        call(owner, "grant_worker", role="stranger")
        assert may(owner, "stranger") == {"schema", *WORKER}
        assert may(owner, "reader") == set()


def dumped(dsn: str, *options: str) -> str:
    """The script that pg_dump makes of a database."""
    command = [str(find_bindir() / "pg_dump"), *options, "-d", dsn]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("defaults", [False, True])
def test_a_dump_without_privileges_lets_nobody_in(
    empty_dsn: str, dsn: str, pg_server: Server, *, defaults: bool
) -> None:
    """CASES 61, restored: PostgreSQL's defaults let PUBLIC execute everything, and the owner's the tables."""
    dbname = str(conninfo_to_dict(empty_dsn)["dbname"])
    with psycopg.connect(empty_dsn, autocommit=True, row_factory=dict_row) as owner:
        if defaults:
            for kind in ("tables", "sequences", "functions", "schemas"):
                owner.execute(f"alter default privileges grant all on {kind} to worker, reader")
        psql(empty_dsn, script=dumped(dsn, "--no-acl", "--no-owner"))
        assert ("schema" in may(owner, "worker")) is defaults
        call(owner, "grant_worker", role="worker")
        call(owner, "grant_reader", role="reader")
        as_reader = {"select leases", "select runs", *READER}  # which default privileges may have given, too
        assert may(owner, "worker") - as_reader == {"schema", *WORKER}
        assert may(owner, "reader") - (WORKER if defaults else set()) == {"schema", *as_reader}
        assert may(owner, "stranger") == set()
        assert {who for _, _, who in others_rights(owner)} == {"worker", "reader"}
        with psycopg.connect(pg_server.dsn(dbname, "worker"), row_factory=dict_row) as worker:
            assert said(worker, "select * from pgonce.run") == "42501"


def test_a_dump_restored_where_role_numbers_differ(
    dsn: str, conn: Conn, a: Conn, pg_server: Server, session: Open
) -> None:
    """CASES 62: a record belongs to the role of the same name, in the other cluster too, and to nobody else.

    Seen to fail with roles kept as oids.
    """
    call(conn, "grant_reader", role="worker2")
    tokens = {kind: grant(a, kind)["token"] for kind in KINDS}
    call(a, "mark_done", token=grant(a, "key", "finished")["token"], result='{"secret": 1}')
    with Server() as other:
        with psycopg.connect(other.dsn(), autocommit=True) as admin:
            for name in ("x1", "x2", "worker2", "reader", "stranger", "worker", OWNER):
                admin.execute(f"create role {name} login password '{other.password}'")
            admin.execute(f"create database there owner {OWNER}")
        there = other.dsn("there")
        psql(there, script=dumped(dsn))

        def open_there(role: str) -> Conn:
            return psycopg.connect(other.dsn("there", role), autocommit=True, row_factory=dict_row)

        with open_there("worker") as worker, open_there("worker2") as worker2:
            numbers = "select oid from pg_roles where rolname = 'worker'"
            assert value(worker, numbers) != value(a, numbers)
            for one, result in ((worker, {"secret": 1}), (worker2, None)):
                denial = ask(one, "key", "finished")
                assert (denial["reason"], denial["result"]) == ("done", result)
            shown = "select role, result from pgonce.runs where name = 'finished'"
            assert worker2.execute(shown).fetchall() == [{"role": "worker", "result": None}]
            for kind, token in tokens.items():
                assert not works(worker2, kind, token)
                assert works(worker, kind, token)
                assert finish(worker, kind, token) == "True"


def test_a_schema_of_somebody_elses_is_refused(empty_dsn: str, pg_server: Server) -> None:
    """Functions that run with their owner's rights must not live where somebody else may change things."""
    dbname = conninfo_to_dict(empty_dsn)["dbname"]
    psql(pg_server.dsn(str(dbname)), "-c", "create schema pgonce authorization stranger")
    done = psql(empty_dsn, "-f", SQL / "install.sql", check=False)
    assert done.returncode == 3
    assert "belongs to another role" in done.stderr
    with psycopg.connect(empty_dsn) as one:
        assert one.execute(
            "select count(*) from pg_class where relnamespace = 'pgonce'::regnamespace"
        ).fetchall() == [(0,)]


def test_a_takeover_by_another_role(a: Conn, session: Open, conn: Conn) -> None:
    """Taken over by another role: the token's new role counts, not the old one's."""
    for kind in KINDS:
        grant(a, kind, f"n {kind}")
        expire(conn, kind, f"n {kind}")
        assert not works(a, kind, grant(session("worker2"), kind, f"n {kind}")["token"])
