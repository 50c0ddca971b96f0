-- The newest revision installed.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce.schema_version()
returns integer
language plpgsql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return 1;
end
$$;

comment on function pgonce.schema_version() is 'The newest revision installed.';
