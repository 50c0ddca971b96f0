-- The settings of a job or scope: those defined, else the defaults.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._read_job(job text)
returns pgonce.job
language plpgsql
stable
as $$
declare
    v_job pgonce.job;
begin
    select j.* into v_job from pgonce.job j where j.job = _read_job.job;
    if not found then
        return pgonce._fresh_job(_read_job.job);
    end if;
    return v_job;
end
$$;

comment on function pgonce._read_job(text) is 'The settings of a job or scope: those defined, else the defaults.';
