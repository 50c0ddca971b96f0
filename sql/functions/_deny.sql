-- The denial of a window or an operation, noted where its job or scope asks for that. Without a reason it is only
-- the description of what may be granted.
-- The stored result is shown only to those for whom the token would work.
-- Locks: nothing. Writes: table denial, only where record_denials is on. Clock: read for that.
-- Raises: nothing.
create function pgonce._deny(
    run      pgonce.run,
    reason   text,
    asker    text,
    holder   pgonce.run default null,
    retry_at timestamptz default null
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_claim pgonce.claim;
begin
    if _deny.run.record_denials and _deny.reason is not null then
        perform pgonce._note_denial(_deny.run.name, _deny.run.key, _deny.asker, _deny.reason);
    end if;
    v_claim.claimed := false;
    v_claim.reason := _deny.reason;
    v_claim.name := _deny.run.name;
    v_claim.key := _deny.run.key;
    v_claim.attempt := _deny.run.attempt;
    v_claim.owner := case when _deny.reason = 'done' then _deny.run.owner else _deny.holder.owner end;
    v_claim.expires_at := _deny.holder.expires_at;
    v_claim.window_start := _deny.run.window_start;
    v_claim.window_end := _deny.run.window_end;
    v_claim.retry_at := _deny.retry_at;
    if _deny.reason = 'done' and _deny.run.result is not null and pgonce._may_use(_deny.run.role) then
        v_claim.result := _deny.run.result;
    end if;
    return v_claim;
end
$$;

comment on function pgonce._deny(pgonce.run, text, text, pgonce.run, timestamptz) is
    'The denial of a window or an operation.';
