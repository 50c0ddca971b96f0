-- Takes from a role every right in the schema.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: nothing.
create function pgonce._revoke(role text)   -- as "revoke" takes it: quoted where it must be, or public
returns void
language plpgsql
volatile
as $$
declare
    v_type regtype;
begin
    execute 'revoke all on schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all tables in schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all sequences in schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all functions in schema pgonce from ' || _revoke.role || ' cascade';
    -- The row types, too: a table of somebody else's with a column of one would stand in the way of altering ours.
    for v_type in
        select t.oid
        from pg_catalog.pg_type t
        where t.typnamespace = 'pgonce'::regnamespace and t.typtype = 'c'
    loop
        execute 'revoke all on type ' || v_type || ' from ' || _revoke.role || ' cascade';
    end loop;
end
$$;

comment on function pgonce._revoke(text) is 'Takes from a role (or public) every right in the schema.';
