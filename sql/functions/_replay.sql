-- The same question asked again: brings back the grant that answered it, renewed. Null: that grant has ended (or is
-- another role's, or cannot be kept alive any longer), and the question counts as if it had no nonce.
-- Locks: the run, for no key update, without waiting; waits at most 50 ms for the table. Writes: run.expires_at. Clock: read under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._replay(
    run   pgonce.run,
    ttl   interval,
    asker text
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_run   pgonce.run;
    v_until timestamptz;
begin
    if _replay.run.state <> 'running' or _replay.run.role <> pgonce._caller()
            or greatest(_replay.run.expires_at, coalesce(_replay.run.max_until, 'infinity')) <= pgonce.clock() then
        return null;    -- known by reading, so that the denial that follows locks nothing
    end if;
    select r.* into v_run
    from pgonce.run r
    where r.token = _replay.run.token and r.state = 'running'
    for no key update skip locked;
    if not found and exists (select from pgonce.run r where r.token = _replay.run.token) then
        return pgonce._deny(_replay.run, 'busy', _replay.asker);
    elsif not found then
        return null;    -- taken over meanwhile
    end if;
    v_until := least(pgonce.clock() + coalesce(_replay.ttl, v_run.ttl), v_run.max_until);
    if greatest(v_until, v_run.expires_at) <= pgonce.clock() then
        return null;
    end if;
    update pgonce.run r
    set expires_at = greatest(r.expires_at, v_until)
    where r.token = v_run.token
    returning r.* into v_run;
    return pgonce._granted(v_run);
exception when lock_not_available or deadlock_detected then
    return pgonce._deny(_replay.run, 'busy', _replay.asker);
end
$$;

comment on function pgonce._replay(pgonce.run, interval, text) is
    'The grant that answered the same question before, renewed; null when it has ended.';
