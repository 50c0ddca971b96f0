-- The role that asks: the one of "set role", else the session's. (current_user is the owner of the calling function.)
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 42704 when the role of "set role" has been renamed or dropped since.
create function pgonce._caller()
returns oid
language sql
stable
as $$
    select pg_catalog.quote_ident(
        coalesce(nullif(pg_catalog.current_setting('role'), 'none'), session_user))::pg_catalog.regrole::oid
$$;

comment on function pgonce._caller() is 'The role that asks: the one of "set role", else session_user.';
