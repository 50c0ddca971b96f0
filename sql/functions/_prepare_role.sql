-- What a role that is granted something needs first: that it exists, and that nothing else is open to it or to PUBLIC than
-- grant_worker and grant_reader give. A dump restored without its privileges leaves PUBLIC what PostgreSQL gives by default
-- (to execute every function), and the role whatever default privileges gave it.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce._prepare_role(role text)
returns void
language plpgsql
volatile
as $$
declare
    v_rights text;
begin
    if not exists (select from pg_catalog.pg_roles r where r.rolname = _prepare_role.role) then
        raise exception using
            errcode = '22023',
            message = coalesce('role does not exist: ' || pgonce._quoted(_prepare_role.role), 'role must not be null'),
            hint = 'Give the name of a role exactly as pg_roles shows it; PUBLIC is never granted anything.';
    end if;
    perform pgonce._revoke('public');
    for v_rights in
        select case c.relkind
            when 'S' then 'all on sequence '
            when 'r' then 'all on table '
            else 'insert, update, delete, truncate, references, trigger on table '    -- a reader may select the views
        end || c.oid::regclass
        from pg_catalog.pg_class c
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'S', 'v')
        union all
        select 'all on function ' || p.oid::regprocedure
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pgonce'::regnamespace
          and (left(p.proname, 1) = '_' and p.proname <> '_may_see'
               or p.proname in ('define_job', 'grant_worker', 'grant_reader'))
        union all
        select 'create on schema pgonce'
    loop
        execute 'revoke ' || v_rights || ' from ' || quote_ident(_prepare_role.role) || ' cascade';
    end loop;
end
$$;

comment on function pgonce._prepare_role(text) is 'Checks the role, and closes what neither it nor PUBLIC may have.';
