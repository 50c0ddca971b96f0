-- The answer to asking for a lease, from the slot's row: a grant that has just been written (and what a yes does to its
-- transaction), or a denial.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._lease_claim(
    lease  pgonce.lease,
    reason text
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_claim pgonce.claim;
begin
    v_claim.claimed := _lease_claim.reason = 'granted';
    v_claim.reason := _lease_claim.reason;
    v_claim.name := _lease_claim.lease.name;
    v_claim.key := _lease_claim.lease.slot::text;
    if _lease_claim.reason <> 'busy' then
        v_claim.owner := _lease_claim.lease.owner;
        v_claim.expires_at := _lease_claim.lease.expires_at;
    end if;
    if v_claim.claimed then
        v_claim.token := _lease_claim.lease.token;
        perform pgonce._secure(_lease_claim.lease.ttl);
    else
        v_claim.retry_at := v_claim.expires_at;
    end if;
    return v_claim;
end
$$;

comment on function pgonce._lease_claim(pgonce.lease, text) is 'The answer to asking for a lease, from the slot''s row.';
