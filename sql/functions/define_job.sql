-- Stores the settings of a job (or, without a schedule, of a scope of operations). Everything is checked now. Calling it
-- again with the same arguments changes nothing; null means the default, but a null schedule keeps the stored one.
-- Locks: none if it changes nothing; else the job's row, for update; waits at most 10 s for an open claim (and as long
--   for another first definition).
-- Writes: job, if it changes anything. Clock: read, again under the lock.
-- Raises: 22023, 55P03 (a claim of the job stays open); 40001 above READ COMMITTED.
create function pgonce.define_job(
    job            text,
    schedule       text default null,
    timezone       text default null,
    ttl            interval default null,
    overlap        text default null,
    max_attempts   integer default null,
    start_deadline interval default null,
    early          interval default null,
    max_hold       interval default null,
    keep           interval default null,
    record_denials boolean default null
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_old    pgonce.job;
    v_new    pgonce.job := pgonce._fresh_job(define_job.job);
    v_given  pgonce.job;    -- v_new, as far as the arguments alone tell
    v_window record;
begin
    perform pgonce._check_name('job', v_new.job, 200);
    v_new.defined := true;
    v_new.ttl := pgonce._duration('ttl', define_job.ttl, false);
    v_new.overlap := coalesce(define_job.overlap, v_new.overlap);
    v_new.max_attempts := coalesce(define_job.max_attempts, v_new.max_attempts);
    v_new.start_deadline := nullif(pgonce._duration('start_deadline', define_job.start_deadline, true), interval '0');
    v_new.early := coalesce(pgonce._duration('early', define_job.early, true), v_new.early);
    v_new.max_hold := nullif(pgonce._duration('max_hold', define_job.max_hold, true), interval '0');
    v_new.keep := coalesce(pgonce._duration('keep', define_job.keep, true), v_new.keep);
    v_new.record_denials := coalesce(define_job.record_denials, v_new.record_denials);
    perform pgonce._check_max_hold(v_new.ttl, v_new.max_hold);
    if v_new.overlap not in ('forbid', 'allow', 'replace') then
        raise exception using
            errcode = '22023',
            message = 'overlap is not known: ' || pgonce._quoted(v_new.overlap),
            hint = 'Give overlap as forbid, allow or replace.';
    end if;
    if v_new.max_attempts < 1 then
        raise exception using
            errcode = '22023',
            message = 'max_attempts is out of range: ' || v_new.max_attempts,
            hint = 'Give max_attempts as a number from 1.';
    end if;
    if define_job.early > v_new.start_deadline then
        raise exception using
            errcode = '22023',
            message = 'start_deadline ' || v_new.start_deadline || ' is shorter than early ' || define_job.early,
            hint = 'Give a start_deadline of at least early: a window claimed early starts on time.';
    end if;

    if define_job.schedule is not null then
        v_new.compiled := pgonce._compile(define_job.schedule collate "C");
    end if;
    v_given := v_new;

    for v_pass in 1..2 loop     -- by reading; then, if it changes anything, again under the lock
        if v_pass = 2 then
            insert into pgonce.job
            values ((pgonce._fresh_job(v_new.job)).*)
            on conflict on constraint job_pkey do nothing;
            perform from pgonce.job j where j.job = v_new.job for update;
        end if;
        v_old := pgonce._read_job(v_new.job);
        v_new := v_given;
        v_new.schedule := coalesce(define_job.schedule, v_old.schedule);
        v_new.timezone := coalesce(
            define_job.timezone, case when define_job.schedule is null then v_old.timezone else 'UTC' end);
        v_new.compiled := coalesce(v_new.compiled, v_old.compiled);
        if v_new.timezone is not null and v_new.schedule is null then
            raise exception using
                errcode = '22023',
                message = 'timezone ' || pgonce._quoted(v_new.timezone) || ' is given, but no schedule',
                hint = 'Give the schedule, too: there is none stored for job ' || pgonce._quoted(v_new.job) || '.';
        end if;
        if v_pass = 1 and v_new.timezone is distinct from v_old.timezone then
            perform pgonce._check_zone(v_new.timezone);     -- slow
        end if;
        v_new.running := v_old.running;
        if v_old.overlap = 'allow' and v_new.overlap <> 'allow' then
            v_new.running := array(
                select r.token
                from pgonce.run r
                where r.kind = 'window' and r.name = v_new.job and r.state = 'running');
        end if;
        v_new.beginning := v_old.beginning;
        v_new.backfill := v_old.backfill;
        v_new.newest_start := v_old.newest_start;
        v_new.newest_end := v_old.newest_end;
        v_new.last_token := v_old.last_token;
        if v_new.schedule is distinct from v_old.schedule or v_new.timezone is distinct from v_old.timezone then
            v_window := pgonce._window(v_new.compiled, v_new.timezone, pgonce.clock());
            v_new.beginning := greatest(v_old.beginning, v_window.window_start);
            v_new.backfill := false;
            v_new.newest_start := null;
            v_new.newest_end := null;
        end if;
        if v_new is not distinct from v_old then
            return;
        end if;
    end loop;
    update pgonce.job j
    set defined = v_new.defined,
        schedule = v_new.schedule,
        timezone = v_new.timezone,
        compiled = v_new.compiled,
        ttl = v_new.ttl,
        overlap = v_new.overlap,
        max_attempts = v_new.max_attempts,
        start_deadline = v_new.start_deadline,
        early = v_new.early,
        max_hold = v_new.max_hold,
        keep = v_new.keep,
        record_denials = v_new.record_denials,
        beginning = v_new.beginning,
        backfill = v_new.backfill,
        newest_start = v_new.newest_start,
        newest_end = v_new.newest_end,
        running = v_new.running
    where j.job = v_new.job;
exception when lock_not_available or deadlock_detected then
    raise exception using
        errcode = '55P03',
        message = 'job ' || pgonce._quoted(v_new.job) || ' is being claimed in a transaction that stays open',
        hint = 'Define it again once that transaction has ended; pg_stat_activity shows it.';
end
$$;

comment on function pgonce.define_job(
    text, text, text, interval, text, integer, interval, interval, interval, interval, boolean) is
    'Stores the settings of a job or scope, all checked now; null means the default, a null schedule keeps the stored one.';
