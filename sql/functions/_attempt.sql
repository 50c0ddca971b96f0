-- The record of a new attempt: what a grant writes over the record found (or over nothing).
-- Locks: nothing. Writes: nothing. Clock: not read (given, read under the lock).
-- Raises: nothing.
create function pgonce._attempt(
    run   pgonce.run,
    job   pgonce.job,
    token bigint,
    ttl   interval,
    owner text,
    nonce uuid,
    at    timestamptz
)
returns pgonce.run
language plpgsql
stable
as $$
declare
    v_run pgonce.run := _attempt.run;
begin
    v_run.state := 'running';
    v_run.token := _attempt.token;
    v_run.burnt := false;
    v_run.attempt := coalesce(v_run.attempt, 0) + case when v_run.counted is false then 0 else 1 end;
    v_run.counted := true;
    v_run.owner := pgonce._owner(_attempt.owner);
    v_run.role := pgonce._caller();
    v_run.nonce := _attempt.nonce;
    v_run.claimed_at := _attempt.at;
    v_run.ttl := least(_attempt.ttl, _attempt.job.max_hold);    -- a caller need not know max_hold
    v_run.expires_at := _attempt.at + v_run.ttl;
    v_run.max_until := _attempt.at + _attempt.job.max_hold;
    v_run.keep := _attempt.job.keep;
    v_run.record_denials := _attempt.job.record_denials;
    v_run.finished_at := null;
    v_run.retry_at := null;
    v_run.keep_until := null;
    v_run.result := null;
    v_run.error := null;
    return v_run;
end
$$;

comment on function pgonce._attempt(pgonce.run, pgonce.job, bigint, interval, text, uuid, timestamptz) is
    'The record of a new attempt, from the one found, the settings and the question.';
