-- Locks the job's row, which every grant of one of its windows writes, and every running run that such a grant may
-- exclude. Null: something of it is locked elsewhere, so nothing is decided.
-- Locks: job, then its running runs unless windows may overlap, for update, without waiting; the caller's
--   lock_timeout bounds the wait for another inserter of a new job.
-- Writes: job, for a job never seen. Clock: not read.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._lock_job(job text)
returns pgonce.job
language plpgsql
volatile
as $$
declare
    v_job    pgonce.job;
    v_locked bigint[];
begin
    select j.* into v_job from pgonce.job j where j.job = _lock_job.job for update skip locked;
    if not found then
        if exists (select from pgonce.job j where j.job = _lock_job.job) then
            return null;
        end if;
        v_job := pgonce._fresh_job(_lock_job.job);
        insert into pgonce.job
        values (v_job.*)
        on conflict on constraint job_pkey do nothing;
        if not found then
            return null;
        end if;
    end if;
    if v_job.overlap = 'allow' or v_job.running = '{}' then
        return v_job;
    end if;
    v_locked := array(
        select r.token
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running'
        for update skip locked);
    if exists (
        select
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running' and r.token <> all (v_locked)
    ) then
        return null;
    end if;
    return v_job;
end
$$;

comment on function pgonce._lock_job(text) is
    'The job''s row, locked together with its running runs; null when something of that is locked elsewhere.';
