-- Gives a lease another number of slots, which needs every slot free. True: done; null: a slot is locked elsewhere.
-- Whoever held an expired slot holds nothing any more.
-- Locks: all rows of the lease, for update, without waiting; waits at most 50 ms for the table. Writes: lease. Clock: read before and under the locks.
-- Raises: 22023 (a slot is held); 40001 above READ COMMITTED.
create function pgonce._resize_lease(
    name  text,
    slots integer
)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_rows  bigint;
    v_slots integer;
    v_token bigint;
    v_until timestamptz;
begin
    for v_pass in 1..2 loop     -- decides by reading; then again under the locks
        select count(*), min(l.slots), max(l.token), max(l.expires_at)
        into v_rows, v_slots, v_token, v_until
        from pgonce.lease l
        where l.name = _resize_lease.name;
        if v_slots = _resize_lease.slots and v_pass = 1 then
            return true;        -- somebody else has done so meanwhile
        elsif v_slots = _resize_lease.slots then
            raise exception using errcode = 'ON000', message = 'somebody else has just done so';
        end if;
        if v_until > pgonce.clock() then
            raise exception using
                errcode = '22023',
                message = 'slots ' || _resize_lease.slots || ' differs from the ' || v_slots || ' of lease '
                    || pgonce._quoted(_resize_lease.name) || ', which is held',
                hint = 'Ask with the same number of slots everywhere, or change it while no slot is held.';
        end if;
        if v_pass = 1 and v_rows <> (
            select count(*)
            from (select from pgonce.lease l where l.name = _resize_lease.name for update skip locked) locked
        ) then
            raise exception using errcode = 'ON000', message = 'a slot is locked elsewhere';
        end if;
    end loop;
    update pgonce.lease l
    set slots = _resize_lease.slots,
        token = case when l.held then pgonce._next_token(v_token) else l.token end,
        held = false,
        nonce = null
    where l.name = _resize_lease.name;
    insert into pgonce.lease (name, slot, slots)
    select _resize_lease.name, n, _resize_lease.slots
    from generate_series(v_rows + 1, _resize_lease.slots) n;
    return true;
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go of the other slots
    return null;
end
$$;

comment on function pgonce._resize_lease(text, integer) is
    'Gives a lease another number of slots, all of which must be free; null when one is locked elsewhere.';
