-- Refuses what is not the name of a role (PUBLIC, too: nothing is ever granted to it).
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_role(role text)
returns void
language plpgsql
stable
as $$
begin
    if exists (select from pg_catalog.pg_roles r where r.rolname = _check_role.role) then
        return;
    end if;
    raise exception using
        errcode = '22023',
        message = coalesce('role does not exist: ' || to_json(left(_check_role.role, 60))::text, 'role must not be null'),
        hint = 'Give the name of a role exactly as pg_roles shows it; PUBLIC is never granted anything.';
end
$$;

comment on function pgonce._check_role(text) is 'Raises 22023 unless there is a role of that name.';
