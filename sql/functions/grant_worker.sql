-- Lets a role claim, renew and finish: it may execute the functions, and touches no table. PUBLIC keeps nothing.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce.grant_worker(role text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_function regprocedure;
begin
    perform pgonce._prepare_role(grant_worker.role collate "C");
    execute 'grant usage on schema pgonce to ' || quote_ident(grant_worker.role);
    execute 'grant usage on type pgonce.claim to ' || quote_ident(grant_worker.role);
    for v_function in
        select p.oid
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'pgonce'
          and p.proname in (
              'claim_window', 'claim_key', 'acquire_lease', 'renew_lease', 'release_lease', 'mark_done', 'mark_failed',
              'assert_held', 'window_at', 'windows', 'key_of', 'schema_version')
    loop
        execute 'grant execute on function ' || v_function || ' to ' || quote_ident(grant_worker.role);
    end loop;
end
$$;

comment on function pgonce.grant_worker(text) is 'Lets a role claim, renew and finish; it touches no table.';
