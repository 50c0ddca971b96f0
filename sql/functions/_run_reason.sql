-- Why the record of a window or an operation cannot be granted, as far as the record alone tells; null: it can.
-- Locks: nothing. Writes: nothing. Clock: not read (given).
-- Raises: nothing.
create function pgonce._run_reason(
    run          pgonce.run,
    max_attempts integer,
    at           timestamptz
)
returns text
language plpgsql
immutable
as $$
begin
    return case
        when _run_reason.run.state = 'done' then 'done'
        when _run_reason.run.state = 'running' and _run_reason.run.expires_at > _run_reason.at then 'held'
        when _run_reason.run.attempt - case when _run_reason.run.counted or _run_reason.max_attempts = 1 then 0 else 1 end
            >= _run_reason.max_attempts then 'exhausted'    -- 1 is at most once, whether it was counted or not
        when _run_reason.run.retry_at > _run_reason.at then 'backoff'
        when _run_reason.run.state = 'replaced' then 'skipped'
    end;
end
$$;

comment on function pgonce._run_reason(pgonce.run, integer, timestamptz) is
    'Why a record cannot be granted, as far as it alone tells; null: it can.';
