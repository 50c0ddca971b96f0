-- Inserts the first record of an operation. True: inserted; false: it is there already; null: somebody else's
-- transaction is at it and did not end within the timeout.
-- Locks: the new row; waits at most 50 ms for another inserter, or for the table. Writes: run. Clock: not read.
-- Raises: 40001 above READ COMMITTED, when a record was committed that the snapshot cannot see.
create function pgonce._insert_run(run pgonce.run)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
begin
    insert into pgonce.run
    values (_insert_run.run.*)
    on conflict on constraint run_pkey do nothing;
    return found;
exception when lock_not_available or deadlock_detected then
    return null;
end
$$;

comment on function pgonce._insert_run(pgonce.run) is
    'Inserts a first record: true; there already: false; in flight elsewhere: null, after 50 ms.';
