-- The schedule, zone and compiled form that hold for a claim: the stored ones where they are left out or the same
-- text; else those given, for a job that was never defined. Parses only what is not stored.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._resolve_schedule(
    job      pgonce.job,
    schedule text,
    timezone text,
    unseen   boolean    -- the zone given was not checked yet
)
returns pgonce.job
language plpgsql
stable
as $$
declare
    v_spec pgonce.job := _resolve_schedule.job;
begin
    v_spec.schedule := coalesce(_resolve_schedule.schedule, v_spec.schedule);
    v_spec.timezone := coalesce(
        _resolve_schedule.timezone,
        case when _resolve_schedule.schedule is null or v_spec.defined then v_spec.timezone end,
        'UTC');
    if v_spec.schedule = _resolve_schedule.job.schedule and v_spec.timezone = _resolve_schedule.job.timezone then
        return v_spec;
    end if;
    if v_spec.schedule is null then
        raise exception using
            errcode = '22023',
            message = 'job ' || pgonce._quoted(v_spec.job) || ' has no schedule, and none is given',
            hint = 'Give schedule => ''0 3 * * *'' (and timezone), or define the job once with pgonce.define_job.';
    end if;
    if v_spec.defined and _resolve_schedule.job.schedule is not null then
        raise exception using
            errcode = '22023',
            message = case when v_spec.schedule <> _resolve_schedule.job.schedule
                then 'schedule ' || pgonce._quoted(v_spec.schedule) || ' is not the one defined for job '
                    || pgonce._quoted(v_spec.job) || ': ' || pgonce._quoted(_resolve_schedule.job.schedule)
                else 'timezone ' || pgonce._quoted(v_spec.timezone) || ' is not the one defined for job '
                    || pgonce._quoted(v_spec.job) || ': ' || pgonce._quoted(_resolve_schedule.job.timezone) end,
            hint = 'Leave schedule and timezone out, or change them with pgonce.define_job.';
    end if;
    v_spec.compiled := pgonce._compile(v_spec.schedule);
    if _resolve_schedule.unseen and v_spec.timezone is distinct from _resolve_schedule.job.timezone then
        -- slow: not for the stored zone, and once a claim
        perform pgonce._check_zone(v_spec.timezone);
    end if;
    return v_spec;
end
$$;

comment on function pgonce._resolve_schedule(pgonce.job, text, text, boolean) is
    'Schedule, zone and compiled form that hold for a claim.';
