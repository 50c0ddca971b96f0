-- The label of a holder: the one given, else made from the client's application name and address.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._owner(owner text)
returns text
language sql
stable
as $$
    select coalesce(_owner.owner,
        coalesce(nullif(pg_catalog.current_setting('application_name'), ''), 'unknown')
            || '@' || coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), 'local'))
$$;

comment on function pgonce._owner(text) is 'The label given, else application name @ address of the client.';
