-- A denial found under the locks, when they have been let go (and with them what _deny noted): noted where its job or scope
-- asks for that, and handed on. One without a reason is busy: something was locked elsewhere.
-- Locks: nothing. Writes: table denial, only where record_denials is on. Clock: read for that.
-- Raises: nothing.
create function pgonce._denied_late(
    seen   pgonce.claim,    -- what the first look told
    denied pgonce.claim,
    asker  text
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_claim pgonce.claim := _denied_late.denied;
begin
    if v_claim.reason is null then
        v_claim := _denied_late.seen;
        v_claim.reason := 'busy';
    end if;
    if exists (select from pgonce.job j where j.job = v_claim.name and j.record_denials) then
        perform pgonce._note_denial(v_claim.name, v_claim.key, _denied_late.asker, v_claim.reason);
    end if;
    return v_claim;
end
$$;

comment on function pgonce._denied_late(pgonce.claim, pgonce.claim, text) is
    'A denial found under the locks: noted, and handed on.';
