-- Inserts the row of a job. True: inserted; false: it is there already; null: somebody else's transaction is at it and
-- did not end within the timeout.
-- Locks: the new row; waits at most 100 ms for another inserter. Writes: job. Clock: not read.
-- Raises: 40001 above READ COMMITTED, when a row was committed that the snapshot cannot see.
create function pgonce._insert_job(job pgonce.job)
returns boolean
language plpgsql
volatile
set lock_timeout = '100ms'
as $$
begin
    insert into pgonce.job
    values (_insert_job.job.*)
    on conflict on constraint job_pkey do nothing;
    return found;
exception when lock_not_available then
    return null;
end
$$;

comment on function pgonce._insert_job(pgonce.job) is
    'Inserts a job''s row: true; there already: false; in flight elsewhere: null, after 100 ms.';
