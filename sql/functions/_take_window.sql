-- The second look at a window, under the locks. A denial found there lets them go. Without a reason: something was locked
-- elsewhere (the job, or a table against writing), so nothing is decided.
-- Locks: see _try_window; waits at most 50 ms each time, for another inserter or for a table.
-- Writes: for a grant, see _grant_window. Clock: read under the locks.
-- Raises: 22023; 40001 above READ COMMITTED.
create function pgonce._take_window(
    job          text,
    schedule     text,
    timezone     text,
    ttl          interval,
    owner        text,
    window_start timestamptz,
    nonce        uuid
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_claim pgonce.claim;
begin
    v_claim := pgonce._try_window(
        _take_window.job, _take_window.schedule, _take_window.timezone, _take_window.ttl, _take_window.owner,
        _take_window.window_start, _take_window.nonce, true);
    if v_claim.claimed then
        return v_claim;
    end if;
    raise exception using errcode = 'ON000', message = 'denied under the locks';
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go what was locked
    return v_claim;
end
$$;

comment on function pgonce._take_window(text, text, text, interval, text, timestamptz, uuid) is
    'The second look at a window, under the locks; no reason: undecided.';
