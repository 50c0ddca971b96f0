-- Lets a role read the views, and execute what they call. PUBLIC keeps nothing.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce.grant_reader(role text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgonce._prepare_role(grant_reader.role collate "C");
    execute 'grant usage on schema pgonce to ' || quote_ident(grant_reader.role);
    execute 'grant select on pgonce.runs, pgonce.leases to ' || quote_ident(grant_reader.role);
    execute 'grant execute on function pgonce.clock(), pgonce._may_see(text) to '
        || quote_ident(grant_reader.role);
end
$$;

comment on function pgonce.grant_reader(text) is 'Lets a role read the views.';
