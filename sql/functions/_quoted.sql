-- A value that is refused, as a message quotes it: as JSON, so that nothing in it is taken for the message, and not more
-- than 60 characters of it.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._quoted(value text)
returns text
language sql
stable
as $$
    select pg_catalog.to_json(pg_catalog.left(_quoted.value, 60))::text
$$;

comment on function pgonce._quoted(text) is 'A refused value as messages quote it: JSON, at most 60 characters.';
