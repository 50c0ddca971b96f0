-- Frees a lease (not before min_hold is over). False: the token holds nothing.
-- Locks: its row, for no key update; waits at most 100 ms.
-- Writes: lease. Clock: read under the lock.
-- Raises: 22023 (the token is a run's), 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.release_lease(token bigint)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_lease pgonce.lease;
begin
    perform pgonce._require_writable();
    select l.* into v_lease from pgonce.lease l where l.token = release_lease.token;
    if not found and exists (select from pgonce.run r where r.token = release_lease.token) then
        raise exception using
            errcode = '22023',
            message = 'token ' || release_lease.token || ' is that of a run, not of a lease',
            hint = 'Finish a window or an operation with mark_done, or give it back with mark_failed(token, retry_in => ''0'').';
    end if;
    if v_lease.held and pgonce._may_use(v_lease.role) then     -- somebody else's is not even locked
        update pgonce.lease l
        set held = false,
            nonce = null,
            expires_at = greatest(l.min_until, pgonce.clock())
        where l.token = release_lease.token and l.held;
        if found then
            perform pgonce._secure(v_lease.ttl);
            return true;
        end if;
    end if;
    return false;
end
$$;

comment on function pgonce.release_lease(bigint) is
    'Frees a lease (not before min_hold is over); false if the token holds nothing.';
