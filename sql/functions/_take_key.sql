-- The second look at an operation, under the lock. A denial found there lets it go. Without a reason: the table was locked
-- against writing, so nothing is decided.
-- Locks: see _try_key; waits at most 50 ms each time, for another inserter or for a table.
-- Writes: for a grant, run. Clock: read under the lock.
-- Raises: 22023, ON002; 40001 above READ COMMITTED.
create function pgonce._take_key(
    scope       text,
    key         text,
    ttl         interval,
    owner       text,
    fingerprint text,
    nonce       uuid
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_claim pgonce.claim;
begin
    v_claim := pgonce._try_key(
        _take_key.scope, _take_key.key, _take_key.ttl, _take_key.owner, _take_key.fingerprint, _take_key.nonce, true);
    if v_claim.claimed then
        return v_claim;
    end if;
    raise exception using errcode = 'ON000', message = 'denied under the lock';
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go what was locked
    return v_claim;
end
$$;

comment on function pgonce._take_key(text, text, interval, text, text, uuid) is
    'The second look at an operation, under the lock; no reason: undecided.';
