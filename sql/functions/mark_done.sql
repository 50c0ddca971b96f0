-- Finishes a run and stores its result. The same call again with the same token: true, the first result is kept.
-- Locks: the run, for no key update; waits at most 100 ms. (A repeated call locks too: a yes is never a read alone.)
-- Writes: run. Clock: read under the lock.
-- Raises: ON001, 22023, 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.mark_done(
    token  bigint,
    result jsonb default null,
    keep   interval default null
)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_keep interval;
    v_run  pgonce.run;
    v_now  timestamptz;
begin
    perform pgonce._require_writable();
    v_keep := pgonce._duration('keep', mark_done.keep, true);
    v_run := pgonce._hold_run(mark_done.token);
    v_now := pgonce.clock();
    if v_run.state = 'running' then
        update pgonce.run r
        set state = 'done',
            finished_at = v_now,
            keep_until = v_now + coalesce(v_keep, r.keep),
            result = mark_done.result
        where r.token = mark_done.token;
    elsif v_run.state <> 'done' then
        perform pgonce._not_held(mark_done.token);
    end if;
    perform pgonce._secure(v_run.ttl);
    return true;
end
$$;

comment on function pgonce.mark_done(bigint, jsonb, interval) is
    'The run is finished; stores its result. keep: how long the record is kept at least.';
