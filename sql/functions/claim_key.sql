-- Claims an operation: a piece of work known by a scope and an idempotency key.
-- Locks: none for a denial; for a grant the operation's record, for update, without waiting, or its insertion
--   (50 ms): what is locked elsewhere is answered busy.
-- Writes: run. A denial: nothing, unless its scope has record_denials.
-- Clock: read before, and again under the lock.
-- Raises: 22023, 25006, ON002 (the key is known with another fingerprint); 40001 above READ COMMITTED.
create function pgonce.claim_key(
    scope       text,
    key         text,
    ttl         interval,
    owner       text default null,
    fingerprint text default null,
    nonce       uuid default null
)
returns pgonce.claim
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_ttl   interval;
    v_seen  pgonce.claim;
    v_claim pgonce.claim;
begin
    perform pgonce._require_writable();
    if claim_key.ttl is null then
        perform pgonce._refuse_null('ttl', 'Give the time after which somebody else may take over, such as ''5 minutes''.');
    end if;
    v_ttl := pgonce._duration('ttl', claim_key.ttl, false);
    if claim_key.owner is not null then
        perform pgonce._check_name('owner', claim_key.owner collate "C", 200);
    end if;

    v_seen := pgonce._try_key(
        claim_key.scope collate "C", claim_key.key, v_ttl, claim_key.owner, claim_key.fingerprint, claim_key.nonce, false);
    if v_seen.reason is not null then
        return v_seen;
    end if;
    v_claim := pgonce._take_key(
        claim_key.scope collate "C", claim_key.key, v_ttl, claim_key.owner, claim_key.fingerprint, claim_key.nonce);
    if v_claim.claimed then
        return v_claim;
    end if;
    return pgonce._denied_late(v_seen, v_claim, claim_key.owner);
end
$$;

comment on function pgonce.claim_key(text, text, interval, text, text, uuid) is
    'Claims an operation: a piece of work known by a scope and an idempotency key.';
