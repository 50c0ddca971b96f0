-- Takes a lease, or one of its equal slots (a semaphore).
-- Locks: none for a denial; for a grant the slot's row, for update, without waiting (a lease never asked for: its
--   insertion, 50 ms; another number of slots: all its rows): what is locked elsewhere is answered busy.
-- Writes: lease. A denial: nothing.
-- Clock: read before, and again under the lock.
-- Raises: 22023, 25006; 40001 above READ COMMITTED.
create function pgonce.acquire_lease(
    name     text,
    ttl      interval,
    owner    text default null,
    slots    integer default null,
    max_hold interval default null,
    min_hold interval default null,
    nonce    uuid default null
)
returns pgonce.claim
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name     text collate "C" := acquire_lease.name;
    v_ttl      interval;
    v_max_hold interval;
    v_min_hold interval;
    v_slots    integer := coalesce(acquire_lease.slots, 1);
    v_lease    pgonce.lease;
    v_known    boolean;
    v_claim    pgonce.claim;
begin
    perform pgonce._require_writable();
    if acquire_lease.ttl is null then
        perform pgonce._refuse_null('ttl', 'Give the time after which somebody else may take over, such as ''5 minutes''.');
    end if;
    v_ttl := pgonce._duration('ttl', acquire_lease.ttl, false);
    v_max_hold := nullif(pgonce._duration('max_hold', acquire_lease.max_hold, true), interval '0');
    v_min_hold := nullif(pgonce._duration('min_hold', acquire_lease.min_hold, true), interval '0');
    perform pgonce._check_max_hold(v_ttl, v_max_hold);
    if v_min_hold > v_max_hold then
        raise exception using
            errcode = '22023',
            message = 'min_hold ' || v_min_hold || ' is above max_hold ' || v_max_hold,
            hint = 'Give a min_hold of at most max_hold.';
    end if;
    if v_slots not between 1 and 1000 then
        raise exception using
            errcode = '22023',
            message = 'slots is out of range: ' || v_slots,
            hint = 'Give slots as a number from 1 to 1000.';
    end if;
    if acquire_lease.owner is not null then
        perform pgonce._check_name('owner', acquire_lease.owner collate "C", 200);
    end if;

    for v_pass in 1..2 loop     -- once more when the slot seen was gone when it came to taking it
        select l.* into v_lease     -- the slot that is free first
        from pgonce.lease l
        where l.name = v_name and l.slots = v_slots and l.slot <= v_slots
        order by l.expires_at
        limit 1;
        v_known := found;
        if acquire_lease.nonce is not null then     -- read afterwards: what was granted in between is no "held"
            v_claim := pgonce._replay_lease(v_name, acquire_lease.nonce, v_ttl);
            if v_claim.reason is not null then
                return v_claim;
            end if;
        end if;
        if v_lease.expires_at > pgonce.clock() then
            return pgonce._lease_claim(v_lease, 'held');
        end if;

        if not v_known and exists (
            select from pgonce.lease l where l.name = v_name and l.slots <> v_slots
        ) then
            v_known := pgonce._resize_lease(v_name, v_slots);
        elsif not v_known then
            perform pgonce._check_name('name', v_name, 200);
            v_known := pgonce._insert_lease(v_name, v_slots);
        end if;
        exit when v_known is null;      -- in flight elsewhere

        v_lease := pgonce._take_slot(
            v_name, v_slots, v_ttl, v_max_hold, v_min_hold, acquire_lease.owner, acquire_lease.nonce);
        if v_lease.token is not null then
            return pgonce._lease_claim(v_lease, 'granted');
        end if;
    end loop;
    v_lease := null;
    v_lease.name := v_name;
    return pgonce._lease_claim(v_lease, 'busy');
end
$$;

comment on function pgonce.acquire_lease(text, interval, text, integer, interval, interval, uuid) is
    'Takes a lease, or one of its equal slots.';
