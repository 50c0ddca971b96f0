-- The same question asked again: brings back the lease that answered it, renewed. Null: that grant has ended (or is
-- another role's, or cannot be kept alive any longer), and the question counts as if it had no nonce.
-- Locks: the slot, for no key update, without waiting; waits at most 50 ms for the table. Writes: lease.expires_at. Clock: read under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._replay_lease(
    name  text,
    nonce uuid,
    ttl   interval
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_lease pgonce.lease;
    v_until timestamptz;
begin
    select l.* into v_lease
    from pgonce.lease l
    where l.name = _replay_lease.name and l.nonce = _replay_lease.nonce and l.held and l.role = pgonce._caller();
    if not found or greatest(v_lease.expires_at, coalesce(v_lease.max_until, 'infinity')) <= pgonce.clock() then
        return null;    -- known by reading, so that a denial that follows locks nothing
    end if;
    perform from pgonce.lease l where l.token = v_lease.token and l.held for no key update skip locked;
    if not found and exists (select from pgonce.lease l where l.token = v_lease.token and l.held) then
        return pgonce._lease_claim(v_lease, 'busy');
    elsif not found then
        return null;    -- taken over meanwhile
    end if;
    v_until := least(pgonce.clock() + _replay_lease.ttl, v_lease.max_until);
    if greatest(v_until, v_lease.expires_at) <= pgonce.clock() then
        return null;
    end if;
    update pgonce.lease l
    set expires_at = greatest(l.expires_at, v_until)
    where l.token = v_lease.token
    returning l.* into v_lease;
    return pgonce._lease_claim(v_lease, 'granted');
exception when lock_not_available or deadlock_detected then
    return pgonce._lease_claim(v_lease, 'busy');
end
$$;

comment on function pgonce._replay_lease(text, uuid, interval) is
    'The lease that answered the same question before, renewed; null when it has ended.';
