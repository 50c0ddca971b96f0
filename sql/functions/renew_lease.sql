-- Extends what the token holds (lease, window or operation) by the whole ttl from now; never shortens it.
-- Locks: its row, for no key update; waits at most 100 ms.
-- Writes: expires_at of lease or run. Clock: read under the lock.
-- Raises: ON001, ON003 (max_hold would be passed; still held until expires_at), 22023, 25006, 55P03 (ask again);
--   40001 above READ COMMITTED.
create function pgonce.renew_lease(
    token bigint,
    ttl   interval default null
)
returns timestamptz
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_ttl   interval;
    v_lease pgonce.lease;
    v_run   pgonce.run;
    v_until timestamptz;
begin
    perform pgonce._require_writable();
    v_ttl := pgonce._duration('ttl', renew_lease.ttl, false);
    select l.* into v_lease from pgonce.lease l where l.token = renew_lease.token for no key update;
    if found and v_lease.held and pgonce._may_use(v_lease.role) then
        v_until := pgonce._renewed(v_ttl, v_lease.ttl, v_lease.acquired_at, v_lease.max_until, v_lease.expires_at);
        update pgonce.lease l set expires_at = v_until where l.token = renew_lease.token;
        perform pgonce._secure(coalesce(v_ttl, v_lease.ttl));
        return v_until;
    end if;
    select r.* into v_run from pgonce.run r where r.token = renew_lease.token for no key update;
    if found and v_run.state = 'running' and not v_run.burnt and pgonce._may_use(v_run.role) then
        v_until := pgonce._renewed(v_ttl, v_run.ttl, v_run.claimed_at, v_run.max_until, v_run.expires_at);
        update pgonce.run r set expires_at = v_until where r.token = renew_lease.token;
        perform pgonce._secure(coalesce(v_ttl, v_run.ttl));
        return v_until;
    end if;
    perform pgonce._not_held(renew_lease.token);
end
$$;

comment on function pgonce.renew_lease(bigint, interval) is
    'Extends what the token holds by the whole ttl from now (null: the one granted); returns the new expires_at.';
