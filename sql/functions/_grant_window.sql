-- Writes the grant of a window. What it excludes is burnt first: whoever held that holds nothing any more.
-- Locks: nothing more; the caller has locked job, running runs and the window's own run.
-- Writes: run (its own, and those burnt or replaced), job. Clock: read; everything is locked.
-- Raises: nothing.
create function pgonce._grant_window(
    job       pgonce.job,           -- the job's row as it is
    spec      pgonce.job,           -- the same with the schedule, timezone and compiled form of this claim
    run       pgonce.run,           -- the window's record; one without a token is new
    beginning timestamptz,          -- the job's beginning from now on; null: this window's start
    explicit  boolean,              -- asked for by window_start
    ttl       interval,
    owner     text,
    nonce     uuid
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_job     pgonce.job := _grant_window.spec;
    v_run     pgonce.run := _grant_window.run;
    v_now     timestamptz := pgonce.clock();
    v_changed boolean := v_job.schedule is distinct from _grant_window.job.schedule
                      or v_job.timezone is distinct from _grant_window.job.timezone;
begin
    if v_job.overlap = 'replace' then
        update pgonce.run r
        set state = 'replaced',
            token = pgonce._next_token(v_job.last_token),
            burnt = true,
            nonce = null,
            finished_at = v_now,
            keep_until = v_now + r.keep
        where r.token = any (v_job.running) and r.state = 'running' and r.window_start < v_run.window_start;
    end if;
    if v_job.overlap <> 'allow' then
        update pgonce.run r
        set token = pgonce._next_token(v_job.last_token),
            burnt = true,
            nonce = null
        where r.token = any (v_job.running) and r.state = 'running' and r.key <> v_run.key;
    end if;

    v_run := pgonce._attempt(
        v_run, v_job, pgonce._next_token(v_job.last_token),
        coalesce(
            _grant_window.ttl,
            v_job.ttl,
            -- to the window's end, at least 5 minutes, at most 24 hours
            make_interval(secs => least(greatest(extract(epoch from v_run.window_end - v_now), 300), 86400))),
        _grant_window.owner, _grant_window.nonce, v_now);
    if _grant_window.run.token is null then
        insert into pgonce.run values (v_run.*);
    else
        perform pgonce._write_attempt(v_run);
    end if;

    if not _grant_window.explicit then
        v_job.newest_start := v_run.window_start;
        v_job.newest_end := v_run.window_end;
    elsif v_changed then
        v_job.newest_start := null;
        v_job.newest_end := null;
    end if;
    -- Where windows overlap, nobody needs this list: define_job makes it anew when that ends.
    update pgonce.job j
    set schedule = v_job.schedule,
        timezone = v_job.timezone,
        compiled = v_job.compiled,
        beginning = coalesce(_grant_window.beginning, v_run.window_start),
        backfill = j.backfill and (j.beginning is null or not v_changed),
        newest_start = v_job.newest_start,
        newest_end = v_job.newest_end,
        running = array(
            select r.token
            from pgonce.run r
            where r.token = any (j.running) and r.state = 'running' and r.key <> v_run.key
              and r.expires_at > v_now) || v_run.token,
        last_token = v_run.token
    where j.job = v_job.job;
    return pgonce._granted(v_run);
end
$$;

comment on function pgonce._grant_window(
    pgonce.job, pgonce.job, pgonce.run, timestamptz, boolean, interval, text, uuid) is
    'Writes the grant of a window, and burns or replaces what it excludes.';
