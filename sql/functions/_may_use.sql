-- Whether a token granted to the role of this name works for the caller: that role itself, its members, members of the
-- schema's owner. A role since dropped or renamed matches nobody else.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: see _caller.
create function pgonce._may_use(role text)
returns boolean
language plpgsql
stable
as $$
declare
    v_caller name := pgonce._caller();
begin
    if _may_use.role = v_caller then
        return true;
    end if;
    return exists (
        select
        from pg_catalog.pg_roles granted
        where (granted.rolname = _may_use.role
               or granted.oid = (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'pgonce'))
          and pg_has_role(v_caller, granted.oid, 'member'));
end
$$;

comment on function pgonce._may_use(text) is 'Whether a token granted to the role of this name works for the caller.';
