-- True while the token holds something (its lease, window or operation), else raises. For every worker, since the job's
-- own role may not be the one that claimed.
-- Locks: its row, for key share, until the transaction ends; waits at most 100 ms. Nobody takes over meanwhile, while
--   the holder's own heartbeat passes.
-- Writes: the row lock. Clock: not read.
-- Raises: ON001, 25006, 55P03 (a takeover is under way: ask again); 40001 above READ COMMITTED.
create function pgonce.assert_held(token bigint)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_ttl interval;
begin
    perform pgonce._require_writable();
    select l.ttl into v_ttl from pgonce.lease l where l.token = assert_held.token and l.held for key share;
    if not found then
        select r.ttl into v_ttl
        from pgonce.run r
        where r.token = assert_held.token and r.state = 'running' and not r.burnt
        for key share;
    end if;
    if v_ttl is null then
        perform pgonce._not_held(assert_held.token);
    end if;
    perform pgonce._secure(v_ttl);
    return true;
end
$$;

comment on function pgonce.assert_held(bigint) is
    'True, or raises ON001; nobody can take over before the caller''s transaction ends.';
