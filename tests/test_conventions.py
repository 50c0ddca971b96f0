"""The house rules, asked of the catalog and of the files of sql/."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.helpers import ROOT, SQL, Conn, psql

SEARCH_PATH = "search_path=pg_catalog, pg_temp"

WORKER = {
    "claim_window": "job text, schedule text, timezone text, ttl interval, owner text,"
    " window_start timestamp with time zone, nonce uuid",
    "claim_key": "scope text, key text, ttl interval, owner text, fingerprint text, nonce uuid",
    "acquire_lease": "name text, ttl interval, owner text, slots integer, max_hold interval,"
    " min_hold interval, nonce uuid",
    "renew_lease": "token bigint, ttl interval",
    "release_lease": "token bigint",
    "mark_done": "token bigint, result jsonb, keep interval",
    "mark_failed": "token bigint, error text, retry_in interval, counted boolean",
    "assert_held": "token bigint",
    "window_at": "schedule text, timezone text, at timestamp with time zone",
    "windows": "schedule text, timezone text, since timestamp with time zone, until timestamp with time zone",
    "key_of": "payload jsonb, version text",
    "schema_version": "",
}
OWNER_ONLY = {
    "define_job": "job text, schedule text, timezone text, ttl interval, overlap text, max_attempts integer,"
    " start_deadline interval, early interval, max_hold interval, keep interval, record_denials boolean",
    "grant_worker": "role text",
    "grant_reader": "role text",
}
PUBLIC = WORKER | OWNER_ONLY
IN_VIEWS = {"_may_see"}  # called by the views, so as whoever reads them
REQUIRED = {
    "claim_window": 1,
    "claim_key": 3,
    "acquire_lease": 2,
    "renew_lease": 1,
    "release_lease": 1,
    "mark_done": 1,
    "mark_failed": 1,
    "assert_held": 1,
    "window_at": 1,
    "windows": 1,
    "key_of": 1,
    "schema_version": 0,
    "define_job": 1,
    "grant_worker": 1,
    "grant_reader": 1,
}

FUNCTIONS = """
    select p.proname as name, p.oid::regprocedure::text as signature, p.prosecdef as definer,
           p.proconfig as config, p.proisstrict as strict, l.lanname as language,
           regexp_replace(pg_get_function_identity_arguments(p.oid), ', OUT .*', '') as arguments,
           p.pronargs - p.pronargdefaults as required, p.proowner::regrole::text as owner,
           obj_description(p.oid, 'pg_proc') as comment
    from pg_proc as p join pg_language as l on l.oid = p.prolang
    where p.pronamespace = 'pgonce'::regnamespace
"""

FILES = sorted(SQL.rglob("*.sql"))
FUNCTION_FILES = [path for path in FILES if path.parent.name in ("functions", "schedule")]
NAMES = [str(path.relative_to(SQL)) for path in FILES]


def rows(conn: Conn, query: str, *parameters: object) -> list[str]:
    """The first column of what breaks a rule."""
    return [str(next(iter(row.values()))) for row in conn.execute(query, parameters or None)]


def code(path: Path) -> str:
    """The text without its comments."""
    return re.sub(r"--[^\n]*", "", path.read_text())


# What the catalog says


def test_the_functions_are_those_of_the_contract(conn: Conn) -> None:
    functions = conn.execute(FUNCTIONS).fetchall()
    public = {
        f["name"]: f["arguments"] for f in functions if not f["name"].startswith("_") and f["name"] != "clock"
    }
    assert public == PUBLIC
    assert {f["name"]: f["required"] for f in functions if f["name"] in PUBLIC} == REQUIRED
    assert len({f["name"] for f in functions}) == len(functions)  # no overloads


def test_public_functions_run_as_the_owner_with_a_search_path_of_their_own(conn: Conn) -> None:
    """Rule 11, case 46. What may wait also has the time it waits at most (rule 7)."""
    for f in conn.execute(FUNCTIONS).fetchall():
        if f["name"] in PUBLIC or f["name"] in IN_VIEWS:
            assert f["definer"], f["signature"]
            assert f["config"][0] == SEARCH_PATH, f["signature"]
            assert f["config"][1:] in ([], ["lock_timeout=100ms"], ["lock_timeout=10s"]), f["signature"]
            assert f["language"] == "plpgsql", f["signature"]


def test_helpers_run_inside_of_them(conn: Conn) -> None:
    """A setting of their own costs 3 microseconds a call: the wait of what writes, the zone of _window."""
    for f in conn.execute(FUNCTIONS).fetchall():
        if f["name"] not in PUBLIC and f["name"] not in IN_VIEWS:
            assert not f["definer"], f["signature"]
            assert f["config"] in (None, ["lock_timeout=50ms"], ["TimeZone=UTC"]), f["signature"]


def test_functions_take_nulls_and_have_comments(conn: Conn) -> None:
    for f in conn.execute(FUNCTIONS).fetchall():
        assert not f["strict"], f["signature"]
        assert f["comment"], f["signature"]
        assert f["owner"] == "pgonce_owner", f["signature"]


def test_nothing_is_granted_to_public(conn: Conn) -> None:
    """Rule 13. A null acl is PostgreSQL's default, which gives functions and types to PUBLIC."""
    assert not rows(
        conn,
        """
        with object (name, acl) as (
            select p.oid::regprocedure::text, coalesce(p.proacl, acldefault('f', p.proowner))
            from pg_proc as p where p.pronamespace = 'pgonce'::regnamespace
            union all
            select c.oid::regclass::text, coalesce(c.relacl, acldefault('r', c.relowner))
            from pg_class as c where c.relnamespace = 'pgonce'::regnamespace
            union all
            select t.oid::regtype::text, coalesce(t.typacl, acldefault('T', t.typowner))
            from pg_type as t left join pg_class as c on c.oid = t.typrelid
            where t.typnamespace = 'pgonce'::regnamespace and t.typelem = 0 and coalesce(c.relkind, 'c') = 'c'
            union all
            select n.nspname::text, coalesce(n.nspacl, acldefault('n', n.nspowner))
            from pg_namespace as n where n.nspname = 'pgonce'
        )
        select object.name from object, aclexplode(object.acl) as a where a.grantee = 0
        """,
    )


@pytest.mark.parametrize(
    ("role", "functions"),
    [("worker", set(WORKER)), ("reader", IN_VIEWS | {"clock"}), ("stranger", set())],
)
def test_who_may_execute_what(conn: Conn, role: str, functions: set[str]) -> None:
    """A reader executes what the views call."""
    may = rows(
        conn,
        "select p.proname from pg_proc as p where p.pronamespace = 'pgonce'::regnamespace"
        " and has_function_privilege(%s, p.oid, 'execute')",
        role,
    )
    assert set(may) == functions


@pytest.mark.parametrize(
    ("role", "relations"), [("worker", set()), ("reader", {"runs", "leases"}), ("stranger", set())]
)
def test_who_may_touch_what(conn: Conn, role: str, relations: set[str]) -> None:
    """A reader reads the views. Nobody but the owner writes anything, or reads a table."""
    may = """
        select c.relname from pg_class as c
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'v', 'p', 'm')
          and (has_table_privilege(%s, c.oid, 'select') or has_any_column_privilege(%s, c.oid, 'select'))
    """
    assert set(rows(conn, may, role, role)) == relations
    writes = "insert, update, delete, truncate, references, trigger"
    assert not rows(
        conn,
        "select c.relname from pg_class as c where c.relnamespace = 'pgonce'::regnamespace"
        " and c.relkind in ('r', 'v', 'p', 'm') and has_table_privilege(%s, c.oid, %s)",
        role,
        writes,
    )
    assert not rows(
        conn,
        "select c.relname from pg_class as c where c.relnamespace = 'pgonce'::regnamespace"
        " and case when c.relkind = 'S' then has_sequence_privilege(%s, c.oid, 'usage, select, update') end",
        role,
    )


def test_everything_has_a_comment(conn: Conn) -> None:
    assert not rows(
        conn,
        """
        select c.oid::regclass::text from pg_class as c
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'v', 'S')
          and obj_description(c.oid, 'pg_class') is null
        union all
        select c.oid::regclass::text || '.' || a.attname
        from pg_class as c join pg_attribute as a on a.attrelid = c.oid
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'v', 'c')
          and a.attnum > 0 and not a.attisdropped and col_description(c.oid, a.attnum) is null
        union all
        select t.oid::regtype::text from pg_type as t join pg_class as c on c.oid = t.typrelid
        where t.typnamespace = 'pgonce'::regnamespace and c.relkind = 'c'
          and obj_description(t.oid, 'pg_type') is null
        union all
        select 'pgonce' where obj_description('pgonce'::regnamespace, 'pg_namespace') is null
        """,
    )


def test_what_must_survive_a_crash_is_logged(conn: Conn) -> None:
    """Rule 9, case 26."""
    unlogged = rows(
        conn,
        "select c.relname from pg_class as c where c.relnamespace = 'pgonce'::regnamespace"
        " and c.relkind in ('r', 'S') and c.relpersistence <> 'p'",
    )
    assert set(unlogged) <= {"denial"}


def test_types_are_plain(conn: Conn) -> None:
    """Text with named checks instead of enums, timestamptz only, text keys in collation "C"."""
    assert not rows(
        conn,
        "select t.typname from pg_type as t"
        " where t.typnamespace = 'pgonce'::regnamespace and t.typtype = 'e'",
    )
    assert not rows(
        conn,
        "select c.relname || '.' || a.attname from pg_class as c join pg_attribute as a on a.attrelid = c.oid"
        " where c.relnamespace = 'pgonce'::regnamespace and a.atttypid = 'timestamp'::regtype",
    )
    assert not rows(
        conn,
        """
        select i.indexrelid::regclass || '.' || a.attname
        from pg_index as i join pg_attribute as a on a.attrelid = i.indexrelid
        join pg_class as c on c.oid = i.indexrelid
        where c.relnamespace = 'pgonce'::regnamespace and a.atttypid = 'text'::regtype
          and a.attcollation <> '"C"'::regcollation
        """,
    )


def test_bodies_pass_plpgsqls_own_extra_checks(empty_dsn: str) -> None:
    warned = psql(
        empty_dsn,
        "-c",
        "set plpgsql.extra_warnings = 'all'",
        "-c",
        "set plpgsql.extra_errors = 'all'",
        "-f",
        SQL / "install.sql",
    )
    assert warned.stderr == ""


# What the files say


def test_every_package_is_packed() -> None:
    """An editable installation finds a folder that pyproject.toml forgets; a wheel does not."""
    (listed,) = re.findall(r"^packages = \[(.*)\]$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    folders = [path.parent.relative_to(ROOT / "pylib") for path in (ROOT / "pylib").rglob("__init__.py")]
    folders += [
        Path("pgonce", path.parent.relative_to(ROOT)) for path in ROOT.glob("migrations/**/__init__.py")
    ]
    assert set(re.findall(r'"(.*?)"', listed)) == {".".join(folder.parts) for folder in folders}


def test_install_names_every_file_once() -> None:
    included = re.findall(r"^\\ir (\S+)$", (SQL / "install.sql").read_text(), re.MULTILINE)
    assert sorted(included) == sorted(set(NAMES) - {"install.sql"})


def test_one_function_a_file_named_after_it(conn: Conn) -> None:
    for path in FUNCTION_FILES:
        created = re.findall(r"\bcreate (?:or replace )?function ([\w.]+)", code(path))
        assert created == [f"pgonce.{path.stem}"], path
    in_database = {f["name"] for f in conn.execute(FUNCTIONS).fetchall()}
    assert {path.stem for path in FUNCTION_FILES} == in_database - {"clock"}


@pytest.mark.parametrize("path", FUNCTION_FILES, ids=lambda path: path.stem)
def test_function_has_its_header(path: Path) -> None:
    header = path.read_text().partition("create function")[0]
    assert all(line.startswith("--") for line in header.splitlines())
    for word in ("Locks:", "Writes:", "Clock:", "Raises:"):
        assert len(re.findall(rf"(?<!\w){word} \S", header)) == 1, word
    assert header.index("Locks:") > len("-- What it does."), "one sentence of purpose comes first"


FORBIDDEN: dict[str, tuple[str, Callable[[Path], str]]] = {
    "a percent sign (Alembic's offline mode doubles it)": (r"%", Path.read_text),
    "a colon before a name (psql and SQLAlchemy would fill it in)": (r"(?<![:\w]):\w|\[\w+:\w", code),
    "another dollar tag": (r"\$\w+\$", Path.read_text),
    "a clock of its own": (
        r"\b(now|statement_timestamp|transaction_timestamp|timeofday)\s*\(\s*\)"
        r"|\b(current_timestamp|current_time|current_date|localtime|localtimestamp)\b"
        r"|'(now|today|tomorrow|yesterday)'",
        code,
    ),
    "an advisory lock as a gate (rule 7)": (r"pg_(try_)?advisory", code),
    "a sleep (rule 7)": (r"pg_sleep", code),
    "create or replace": (r"\bcreate or replace\b", code),
    "strict": (r"^strict\b|\breturns null on null input\b", code),
    "a tab": (r"\t", Path.read_text),
    "a space at a line's end": (r"[ \t]+$", Path.read_text),
}


@pytest.mark.parametrize("what", FORBIDDEN)
def test_no_file_has(what: str) -> None:
    pattern, text = FORBIDDEN[what]
    found = [
        (str(path.relative_to(SQL)), match.group())
        for path in FILES
        for match in re.finditer(pattern, text(path), re.IGNORECASE | re.MULTILINE)
    ]
    assert found == []


def test_clock_timestamp_stands_in_clock_only() -> None:
    found = [path.name for path in FILES for _ in re.finditer("clock_timestamp", code(path))]
    assert found == ["schema.sql"]


def test_configuration_is_set_for_the_transaction_only() -> None:
    """Rule 11: a pooler would hand a session's settings to somebody else."""
    for path in FUNCTION_FILES:
        for call in re.findall(r"set_config\((.*?)\);", code(path), re.DOTALL):
            assert re.search(r",\s*true$", call), (path, call)
