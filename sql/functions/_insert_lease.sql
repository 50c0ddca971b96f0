-- Inserts all slots of a lease never asked for. The first slot's row decides among those who come at once.
-- True: inserted; false: there already; null: somebody else's transaction is at it and did not end within the timeout.
-- Locks: the new rows; waits at most 50 ms for another inserter, or for the table. Writes: lease. Clock: not read.
-- Raises: 40001 above READ COMMITTED, when rows were committed that the snapshot cannot see.
create function pgonce._insert_lease(
    name  text,
    slots integer
)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
begin
    insert into pgonce.lease (name, slot, slots)
    values (_insert_lease.name, 1, _insert_lease.slots)
    on conflict on constraint lease_pkey do nothing;
    if not found then
        return false;
    end if;
    insert into pgonce.lease (name, slot, slots)
    select _insert_lease.name, n, _insert_lease.slots
    from generate_series(2, _insert_lease.slots) n;
    return true;
exception when lock_not_available or deadlock_detected then
    return null;
end
$$;

comment on function pgonce._insert_lease(text, integer) is
    'Inserts all slots of a new lease: true; there already: false; in flight elsewhere: null, after 50 ms.';
