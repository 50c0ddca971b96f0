-- Takes the first slot that is free and not locked elsewhere. Null: there is none at this moment, or the same question is
-- being answered with another slot (the unique index on name, role and nonce says so); then nothing stays locked.
-- Locks: the slot, for update, without waiting; waits at most 50 ms for the same question, or for the table.
-- Writes: lease. Clock: read before and under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._take_slot(
    name     text,
    slots    integer,
    ttl      interval,
    max_hold interval,
    min_hold interval,
    owner    text,
    nonce    uuid
)
returns pgonce.lease
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_now   timestamptz := pgonce.clock();
    v_lease pgonce.lease;
begin
    select l.* into v_lease
    from pgonce.lease l
    where l.name = _take_slot.name and l.slots = _take_slot.slots and l.slot <= _take_slot.slots
      and l.expires_at <= v_now
    order by l.nonce = _take_slot.nonce desc nulls last, l.slot
    limit 1
    for update skip locked;
    if not found then
        return null;
    end if;
    if _take_slot.slots > 1 and current_setting('transaction_isolation') <> 'read committed' then
        begin       -- 40001 if another slot was granted since the snapshot: its token would not be seen below
            perform from pgonce.lease l where l.name = _take_slot.name for key share skip locked;
            raise exception using errcode = 'ON000', message = 'no slot was granted since the snapshot';
        exception when sqlstate 'ON000' then
            null;   -- which lets go of the other slots
        end;
    end if;
    v_now := pgonce.clock();
    update pgonce.lease l
    set held = true,
        token = pgonce._next_token((select max(t.token) from pgonce.lease t where t.name = _take_slot.name)),
        owner = pgonce._owner(_take_slot.owner),
        role = pgonce._caller(),
        nonce = _take_slot.nonce,
        ttl = _take_slot.ttl,
        acquired_at = v_now,
        expires_at = v_now + greatest(_take_slot.ttl, _take_slot.min_hold),
        max_until = v_now + _take_slot.max_hold,
        min_until = v_now + _take_slot.min_hold
    where l.name = v_lease.name and l.slot = v_lease.slot
    returning l.* into v_lease;
    return v_lease;
exception when lock_not_available or deadlock_detected or unique_violation then
    return null;
end
$$;

comment on function pgonce._take_slot(text, integer, interval, interval, interval, text, uuid) is
    'Takes the first slot that is free; null: there is none at this moment.';
