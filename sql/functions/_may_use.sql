-- Whether a token granted to this role works for the caller: the role itself, its members, members of the schema's
-- owner. A role since dropped matches nobody else.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._may_use(role oid)
returns boolean
language plpgsql
stable
as $$
declare
    v_caller oid := pgonce._caller();
begin
    if _may_use.role = v_caller then
        return true;
    end if;
    return exists (
        select
        from pg_catalog.pg_roles granted
        where granted.oid in (_may_use.role,
                              (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'pgonce'))
          and pg_catalog.pg_has_role(v_caller, granted.oid, 'member'));
end
$$;

comment on function pgonce._may_use(oid) is 'Whether a token granted to this role works for the caller.';
