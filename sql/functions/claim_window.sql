-- Claims the window of the job's schedule that is open now (within the job's early before the next fire time: the
-- coming one), or the one that starts at window_start.
-- Locks: none for a denial; for a grant the job's row, then its running runs (unless overlap is allow) and the
--   window's own run, for update, without waiting: what is locked elsewhere is answered busy.
-- Writes: job and run; runs that this grant excludes are burnt, or replaced. A denial: nothing, unless its job has
--   record_denials.
-- Clock: read before, and again under the locks.
-- Raises: 22023, 25006; 40001 above READ COMMITTED.
create function pgonce.claim_window(
    job          text,
    schedule     text default null,
    timezone     text default null,
    ttl          interval default null,
    owner        text default null,
    window_start timestamptz default null,
    nonce        uuid default null
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
    v_ttl := pgonce._duration('ttl', claim_window.ttl, false);
    if claim_window.owner is not null then
        perform pgonce._check_name('owner', claim_window.owner collate "C", 200);
    end if;
    if claim_window.window_start is not null then
        perform pgonce._check_instant('window_start', claim_window.window_start);
    end if;

    v_seen := pgonce._try_window(
        claim_window.job collate "C", claim_window.schedule, claim_window.timezone, v_ttl, claim_window.owner,
        claim_window.window_start, claim_window.nonce, false);
    if v_seen.reason is not null then
        return v_seen;
    end if;
    v_claim := pgonce._take_window(
        claim_window.job collate "C", claim_window.schedule, claim_window.timezone, v_ttl, claim_window.owner,
        claim_window.window_start, claim_window.nonce);
    if v_claim.claimed then
        return v_claim;
    end if;
    return pgonce._denied_late(v_seen, v_claim, claim_window.owner);
end
$$;

comment on function pgonce.claim_window(text, text, text, interval, text, timestamptz, uuid) is
    'Claims the window of the job''s schedule that is open now, or the one that starts at window_start.';
