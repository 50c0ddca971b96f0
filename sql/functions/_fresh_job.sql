-- The row of a job or scope of which nothing is known: the defaults, in one place.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fresh_job(job text)
returns pgonce.job
language plpgsql
immutable
as $$
declare
    v_job pgonce.job;
begin
    v_job.job := _fresh_job.job;
    v_job.defined := false;
    v_job.overlap := 'forbid';
    v_job.max_attempts := 3;
    v_job.early := interval '1 second';
    v_job.keep := make_interval(hours => 90 * 24);
    v_job.record_denials := false;
    v_job.backfill := true;
    v_job.running := '{}';
    v_job.last_token := 0;
    return v_job;
end
$$;

comment on function pgonce._fresh_job(text) is 'The row of a job never defined and never granted: the defaults.';
