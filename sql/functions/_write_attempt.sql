-- Writes a new attempt over the record, which the caller has locked.
-- Locks: nothing more. Writes: run. Clock: not read.
-- Raises: nothing.
create function pgonce._write_attempt(run pgonce.run)
returns void
language plpgsql
volatile
as $$
begin
    update pgonce.run r
    set state = _write_attempt.run.state,
        token = _write_attempt.run.token,
        burnt = _write_attempt.run.burnt,
        attempt = _write_attempt.run.attempt,
        counted = _write_attempt.run.counted,
        owner = _write_attempt.run.owner,
        role = _write_attempt.run.role,
        nonce = _write_attempt.run.nonce,
        fingerprint = _write_attempt.run.fingerprint,
        claimed_at = _write_attempt.run.claimed_at,
        expires_at = _write_attempt.run.expires_at,
        finished_at = _write_attempt.run.finished_at,
        ttl = _write_attempt.run.ttl,
        max_until = _write_attempt.run.max_until,
        retry_at = _write_attempt.run.retry_at,
        keep = _write_attempt.run.keep,
        keep_until = _write_attempt.run.keep_until,
        record_denials = _write_attempt.run.record_denials,
        window_end = _write_attempt.run.window_end,
        result = _write_attempt.run.result,
        error = _write_attempt.run.error
    where r.kind = _write_attempt.run.kind and r.name = _write_attempt.run.name and r.key = _write_attempt.run.key;
end
$$;

comment on function pgonce._write_attempt(pgonce.run) is 'Writes a new attempt over a record that is locked.';
