-- One look at a window. By reading: a denial, or an answer without a reason (it may be granted). Under the locks: a grant
-- or a denial; null when the job itself is locked elsewhere.
-- Locks: only if told to: the job's row, then its running runs (unless overlap is allow) and the window's own run, for
--   update, without waiting: what is locked elsewhere is answered busy.
-- Writes: for a grant, see _grant_window. Clock: read, after the locks.
-- Raises: 22023; 40001 above READ COMMITTED.
create function pgonce._try_window(
    job          text,
    schedule     text,
    timezone     text,
    ttl          interval,
    owner        text,
    window_start timestamptz,
    nonce        uuid,
    locked       boolean
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_job       pgonce.job;
    v_spec      pgonce.job;     -- what schedule, timezone and compiled hold for this claim
    v_changed   boolean;        -- ... and are not the stored ones
    v_run       pgonce.run;     -- the window's record; where there is none: its name, key and window
    v_new       boolean;        -- ... there is none
    v_other     pgonce.run;
    v_explicit  boolean := _try_window.window_start is not null;
    v_window    record;
    v_start     timestamptz;
    v_end       timestamptz;
    v_key       text;
    v_early     interval;
    v_beginning timestamptz;
    v_now       timestamptz;
    v_reason    text;
    v_claim     pgonce.claim;
begin
    -- The job: what is known of it, and whether this very question was answered before.
    if _try_window.locked then
        v_job := pgonce._lock_job(_try_window.job);
        if v_job.job is null then
            return null;
        end if;
    else
        select j.* into v_job from pgonce.job j where j.job = _try_window.job;
        if not found then
            perform pgonce._check_name('job', _try_window.job, 200);
            v_job := pgonce._fresh_job(_try_window.job);
        end if;
    end if;
    if _try_window.nonce is not null then
        select r.* into v_other
        from pgonce.run r
        where r.kind = 'window' and r.name = _try_window.job and r.nonce = _try_window.nonce and r.state = 'running'
        order by r.token desc       -- where windows overlap, an expired one of the same question may be there, too
        limit 1;
        if found then
            v_claim := pgonce._replay(v_other, _try_window.ttl, _try_window.owner);
            if v_claim.reason is not null then
                return v_claim;
            end if;
        end if;
    end if;

    -- The window.
    v_spec := pgonce._resolve_schedule(v_job, _try_window.schedule, _try_window.timezone, not _try_window.locked);
    v_changed := v_spec.schedule is distinct from v_job.schedule
        or v_spec.timezone is distinct from v_job.timezone;
    v_now := pgonce.clock();
    v_start := v_job.newest_start;
    v_end := v_job.newest_end;
    if v_explicit or v_changed or (v_now >= v_start and v_now < v_end) is not true then
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, coalesce(_try_window.window_start, v_now));
        v_start := v_window.window_start;
        v_end := v_window.window_end;
    end if;
    if not v_explicit and v_end - v_now <= v_job.early then
        -- A host whose clock runs ahead means the coming window, whatever became of the present one.
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, v_end);
        if v_end - v_now <= (v_window.window_end - v_window.window_start) / 4 then
            v_start := v_window.window_start;
            v_end := v_window.window_end;
        end if;
    end if;
    if v_explicit and v_start <> _try_window.window_start then
        v_start := _try_window.window_start;
        v_end := null;      -- not a start of the schedule: its record must tell
    end if;
    v_beginning := v_job.beginning;
    if v_beginning is not null and v_changed then
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, v_now);
        v_beginning := greatest(v_beginning, v_window.window_start);
    elsif v_explicit and v_job.backfill then
        v_beginning := least(v_beginning, v_start);
    end if;

    -- Its record, and the first reason that speaks against a grant.
    -- No zone by name: PostgreSQL 18 takes an abbreviation of the session's own zone first, even for UTC.
    v_key := replace(to_char(v_start at time zone interval '0', 'YYYY-MM-DD"T"HH24.MI.SS"Z"'), '.', ':');
    select r.* into v_run
    from pgonce.run r
    where r.kind = 'window' and r.name = _try_window.job and r.key = v_key;
    v_new := not found;
    if v_end is null and v_run.window_start is distinct from v_start then
        raise exception using
            errcode = '22023',
            message = 'window_start ' || _try_window.window_start || ' is not a fire time of '
                || pgonce._quoted(v_spec.schedule) || ' in ' || v_spec.timezone,
            hint = 'Give a fire time exactly; pgonce.windows(schedule, timezone, since, until) lists them.';
    end if;
    if v_new then
        v_run.kind := 'window';
        v_run.name := _try_window.job;
        v_run.key := v_key;
        v_run.window_start := v_start;
        v_run.window_end := v_end;
        v_run.record_denials := v_job.record_denials;
    elsif _try_window.locked and v_run.state <> 'done' then
        select r.* into v_other from pgonce.run r where r.token = v_run.token for update skip locked;
        if not found then
            return pgonce._deny(v_run, 'busy', _try_window.owner);
        end if;
        v_run := v_other;
    end if;
    v_end := coalesce(v_end, v_run.window_end);
    v_run.window_end := v_end;      -- of the schedule as it is now
    if v_explicit then
        v_early := make_interval(secs => extract(epoch from least(v_job.early, (v_end - v_start) / 4)));
    end if;
    v_now := pgonce.clock();
    v_reason := coalesce(pgonce._run_reason(v_run, v_job.max_attempts, v_now), case
        when v_start < v_beginning then 'skipped'
        when v_explicit and v_now < v_start - v_early then 'ahead'
        when v_new and not v_explicit and v_now > v_start + v_job.start_deadline then 'late'
    end);
    if v_reason is null and v_job.overlap <> 'allow' then
        select r.* into v_other
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running' and r.expires_at > v_now
          and r.key <> v_key and (v_job.overlap = 'forbid' or r.window_start > v_start)
        order by r.expires_at desc
        limit 1;
        if found then
            v_reason := 'overlap';
        end if;
    end if;
    if v_run.nonce = _try_window.nonce then     -- committed since the question was looked for
        v_claim := pgonce._replay(v_run, _try_window.ttl, _try_window.owner);
        if v_claim.reason is not null then
            return v_claim;
        end if;
    end if;
    if v_reason is not null or not _try_window.locked then
        return pgonce._deny(
            v_run, v_reason, _try_window.owner,
            case v_reason when 'held' then v_run when 'overlap' then v_other end,
            case v_reason
                when 'held' then v_run.expires_at
                when 'overlap' then v_other.expires_at
                when 'backoff' then v_run.retry_at
                when 'ahead' then v_start - v_early
            end);
    end if;
    return pgonce._grant_window(
        v_job, v_spec, v_run, v_beginning, v_explicit, _try_window.ttl, _try_window.owner, _try_window.nonce);
end
$$;

comment on function pgonce._try_window(text, text, text, interval, text, timestamptz, uuid, boolean) is
    'One look at a window, by reading (no reason: it may be granted) or under the locks.';
