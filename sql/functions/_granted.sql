-- The grant of a window or an operation that has just been written, and what a yes does to its transaction.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._granted(run pgonce.run)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_claim pgonce.claim;
begin
    perform pgonce._secure(_granted.run.ttl);
    v_claim.claimed := true;
    v_claim.reason := 'granted';
    v_claim.name := _granted.run.name;
    v_claim.key := _granted.run.key;
    v_claim.token := _granted.run.token;
    v_claim.attempt := _granted.run.attempt;
    v_claim.owner := _granted.run.owner;
    v_claim.expires_at := _granted.run.expires_at;
    v_claim.window_start := _granted.run.window_start;
    v_claim.window_end := _granted.run.window_end;
    return v_claim;
end
$$;

comment on function pgonce._granted(pgonce.run) is 'The grant of a window or an operation that has just been written.';
