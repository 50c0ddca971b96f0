"""What stands in a database, told so that two databases can be compared."""

from __future__ import annotations

import psycopg

Catalog = set[tuple[str, str, str]]

# Everything of schema pgonce but the version table: kind, identity, and what it is. The order of a table's
# columns is left out (an upgrade appends them); that of a type's and a view's is not.
SCHEMA = """
with relation as (
    select c.* from pg_class as c
    where c.relnamespace = to_regnamespace('pgonce') and c.relname !~ '^pgonce_version'
),
definition (class, id, part, kind, text) as (
    select 'pg_namespace'::regclass, n.oid, 0, 'schema', concat(n.nspowner::regrole)
    from pg_namespace as n where n.nspname = 'pgonce'
    union all
    select 'pg_class'::regclass, c.oid, 0, 'relation', concat_ws(' ', c.relkind, c.relpersistence,
           c.relowner::regrole, c.reloptions, c.relrowsecurity, c.relhasrules, c.relreplident,
           case when c.relkind = 'v' then pg_get_viewdef(c.oid) end,
           case when c.relkind = 'i' then pg_get_indexdef(c.oid) end)
    from relation as c
    union all
    select 'pg_class'::regclass, a.attrelid, a.attnum, 'column', concat_ws(' ',
           format_type(a.atttypid, a.atttypmod), case when c.relkind <> 'r' then a.attnum end,
           a.attnotnull, a.attidentity, a.attgenerated, a.attstorage,
           a.attcollation::regcollation, pg_get_expr(d.adbin, d.adrelid))
    from pg_attribute as a join relation as c on c.oid = a.attrelid
    left join pg_attrdef as d on d.adrelid = a.attrelid and d.adnum = a.attnum
    where a.attnum > 0 and not a.attisdropped
    union all
    select 'pg_class'::regclass, s.seqrelid, 0, 'sequence', concat_ws(' ', s.seqtypid::regtype, s.seqstart,
           s.seqincrement, s.seqmax, s.seqmin, s.seqcache, s.seqcycle)
    from pg_sequence as s join relation as c on c.oid = s.seqrelid
    union all
    select 'pg_constraint'::regclass, k.oid, 0, 'constraint', pg_get_constraintdef(k.oid)
    from pg_constraint as k join relation as c on c.oid = k.conrelid
    union all
    select 'pg_trigger'::regclass, t.oid, 0, 'trigger', pg_get_triggerdef(t.oid)
    from pg_trigger as t join relation as c on c.oid = t.tgrelid
    union all
    select 'pg_type'::regclass, t.oid, 0, 'type', concat_ws(' ', t.typtype, t.typowner::regrole)
    from pg_type as t where t.typnamespace = to_regnamespace('pgonce') and t.typname !~ '^_?pgonce_version'
    union all
    select 'pg_proc'::regclass, p.oid, 0, 'function',
           concat_ws(' ', p.proowner::regrole, pg_get_functiondef(p.oid))
    from pg_proc as p where p.pronamespace = to_regnamespace('pgonce') and p.prokind in ('f', 'p')
),
acl (class, id, part, items) as (
    select 'pg_namespace'::regclass, n.oid, 0, n.nspacl from pg_namespace as n where n.nspname = 'pgonce'
    union all
    select 'pg_class'::regclass, c.oid, 0, c.relacl from relation as c
    union all
    select 'pg_class'::regclass, a.attrelid, a.attnum, a.attacl
    from pg_attribute as a join relation as c on c.oid = a.attrelid
    union all
    select 'pg_type'::regclass, t.oid, 0, t.typacl from pg_type as t
    where t.typnamespace = to_regnamespace('pgonce') and t.typname !~ '^_?pgonce_version'
    union all
    select 'pg_proc'::regclass, p.oid, 0, p.proacl from pg_proc as p
    where p.pronamespace = to_regnamespace('pgonce')
),
told (kind, class, id, part, text) as (
    select kind, class, id, part, text from definition
    union all
    select 'comment', d.classoid, d.objoid, d.objsubid, d.description
    from pg_description as d
    join definition as o on (o.class, o.id, o.part) = (d.classoid, d.objoid, d.objsubid)
    where o.kind <> 'sequence'
    union all
    select 'acl', class, id, part,
           (select string_agg(item::text, ' ' order by item::text) from unnest(items) as item)
    from acl where items is not null
    union all
    select 'default acl', 'pg_default_acl'::regclass, d.oid, 0, concat_ws(' ', d.defaclobjtype, d.defaclacl)
    from pg_default_acl as d
)
select kind, (pg_identify_object(class, id, part)).identity, text from told
"""

# Every object that was not there when the database was made.
OBJECTS = """
with object (class, id) as (
    select tableoid, oid from pg_namespace union all select tableoid, oid from pg_class
    union all select tableoid, oid from pg_type union all select tableoid, oid from pg_proc
    union all select tableoid, oid from pg_constraint union all select tableoid, oid from pg_attrdef
    union all select tableoid, oid from pg_trigger union all select tableoid, oid from pg_default_acl
    union all select tableoid, oid from pg_event_trigger union all select tableoid, oid from pg_extension
    union all select classoid, objoid from pg_description
)
select o.type, o.identity, '' from object, pg_identify_object(class, id, 0) as o
where id >= 16384 and o.identity !~ 'pg_toast|pg_temp'
"""


def read(dsn: str, query: str = SCHEMA) -> Catalog:
    with psycopg.connect(dsn) as conn:
        return set(conn.execute(query).fetchall())
