"""What a role may do in the schema, asked of the server."""

from __future__ import annotations

from tests.helpers import Conn

QUERY = """
    select 'schema' as what
    from pg_namespace n
    where n.nspname = 'pgonce' and has_schema_privilege(%(role)s, n.oid, 'usage')
    union all
    select 'create in schema'
    from pg_namespace n
    where n.nspname = 'pgonce' and has_schema_privilege(%(role)s, n.oid, 'create')
    union all
    select p.proname
    from pg_proc p
    where p.pronamespace = 'pgonce'::regnamespace and has_function_privilege(%(role)s, p.oid, 'execute')
    union all
    select privilege || ' ' || c.relname
    from pg_class c,
        unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) privilege
    where c.relnamespace = 'pgonce'::regnamespace
        and c.relkind in ('r', 'v')
        and has_table_privilege(%(role)s, c.oid, privilege)
    union all
    select privilege || ' ' || c.relname
    from pg_class c, unnest(array['usage', 'select', 'update']) privilege
    where c.relnamespace = 'pgonce'::regnamespace
        and c.relkind = 'S'
        and has_sequence_privilege(%(role)s, c.oid, privilege)
"""


def may(conn: Conn, role: str) -> set[str]:
    """Names of functions; "select runs"; "schema" for its use."""
    return {row["what"] for row in conn.execute(QUERY, {"role": role}).fetchall()}
