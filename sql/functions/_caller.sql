-- The name of the role that asks: the one of "set role", else the session's. (current_user is the owner of the calling
-- function.) The setting keeps the name as it was: when that role has been renamed since, another one may have it.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 42501 when the session may not take the role of that name.
create function pgonce._caller()
returns text
language plpgsql
stable
as $$
declare
    v_role text := current_setting('role');
begin
    if v_role = 'none' then
        return session_user;
    end if;
    if exists (
        select from pg_catalog.pg_roles r where r.rolname = v_role and pg_has_role(session_user, r.oid, 'member')
    ) then
        return v_role;
    end if;
    raise exception using
        errcode = '42501',
        message = 'the role of "set role" is no role of this session any more: ' || pgonce._quoted(v_role),
        hint = 'It was renamed, dropped or taken away since: call reset role, then set role again.';
end
$$;

comment on function pgonce._caller() is 'The name of the role that asks: the one of "set role", else session_user.';
