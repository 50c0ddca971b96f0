-- Ends an attempt that failed: the run can be claimed again after retry_in, within max_attempts. One that is not counted
-- (it was not the work's fault: a deploy stopped it) leaves its number to the next, unless max_attempts is 1.
-- The same call again with the same token: true, what the first one stored is kept.
-- Locks: the run, for no key update; waits at most 100 ms. (A repeated call locks too: a yes is never a read alone.)
-- Writes: run. Clock: read under the lock.
-- Raises: ON001, 22023, 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.mark_failed(
    token    bigint,
    error    text default null,
    retry_in interval default null,
    counted  boolean default null
)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_retry_in interval;
    v_run      pgonce.run;
    v_now      timestamptz;
begin
    perform pgonce._require_writable();
    v_retry_in := pgonce._duration('retry_in', mark_failed.retry_in, true);
    v_run := pgonce._hold_run(mark_failed.token);
    v_now := pgonce.clock();
    if v_run.state = 'running' then
        update pgonce.run r
        set state = 'failed',
            finished_at = v_now,
            keep_until = v_now + r.keep,
            -- By default 30 seconds, doubling with each attempt, at most an hour: 30 * 2^7 is above 3600.
            retry_at = v_now + coalesce(v_retry_in, make_interval(secs => least(30 * 2 ^ least(r.attempt - 1, 7), 3600))),
            counted = coalesce(mark_failed.counted, true),
            error = mark_failed.error
        where r.token = mark_failed.token;
    elsif v_run.state <> 'failed' then
        perform pgonce._not_held(mark_failed.token);
    end if;
    perform pgonce._secure(v_run.ttl);
    return true;
end
$$;

comment on function pgonce.mark_failed(bigint, text, interval, boolean) is
    'The attempt failed; the run can be claimed again after retry_in (default 30 seconds, doubling, at most an hour).';
