-- One look at an operation. By reading: a denial, an answer without a reason (it may be granted), or, for a key not seen
-- before, the grant, which its insertion decides. Under the lock: a grant or a denial.
-- Locks: only if told to: the record, for update, without waiting; a new record waits at most 50 ms for another inserter.
--   What is locked elsewhere is answered busy.
-- Writes: for a grant, run. Clock: read, after the lock.
-- Raises: 22023, ON002; 40001 above READ COMMITTED.
create function pgonce._try_key(
    scope       text,
    key         text,
    ttl         interval,
    owner       text,
    fingerprint text,
    nonce       uuid,
    locked      boolean
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_job    pgonce.job;     -- the scope's settings
    v_run    pgonce.run;     -- the operation's record; where there is none: its scope and key
    v_next   pgonce.run;
    v_known  boolean;
    v_over   boolean;        -- the record is kept no longer: the operation may be granted anew
    v_now    timestamptz;
    v_reason text;
    v_claim  pgonce.claim;
begin
    select r.* into v_run
    from pgonce.run r
    where r.kind = 'operation' and r.name = _try_key.scope and r.key = _try_key.key;
    v_known := found;
    if v_known and _try_key.locked then
        select r.* into v_next from pgonce.run r where r.token = v_run.token for update skip locked;
        v_known := found;
        if v_known then
            v_run := v_next;
        elsif exists (select from pgonce.run r where r.token = v_run.token) then
            return pgonce._deny(v_run, 'busy', _try_key.owner);
        end if;                 -- else it was swept between the two
    end if;

    if not v_known then
        perform pgonce._check_name('scope', _try_key.scope, 200);
        perform pgonce._check_name('key', _try_key.key, 1000);
        v_job := pgonce._read_job(_try_key.scope);
        v_run := null;
        v_run.kind := 'operation';
        v_run.name := _try_key.scope;
        v_run.key := _try_key.key;
        v_run.fingerprint := _try_key.fingerprint;
        v_run.record_denials := v_job.record_denials;
        v_next := pgonce._attempt(
            v_run, v_job, pgonce._next_token(0::bigint), _try_key.ttl, _try_key.owner, _try_key.nonce, pgonce.clock());
        if pgonce._insert_run(v_next) then
            v_now := pgonce.clock();
            if v_now > v_next.claimed_at + interval '10 milliseconds' then
                -- It waited for somebody who then rolled back; the ttl runs from the grant.
                v_next := pgonce._attempt(
                    v_run, v_job, v_next.token, _try_key.ttl, _try_key.owner, _try_key.nonce, v_now);
                perform pgonce._write_attempt(v_next);
            end if;
            return pgonce._granted(v_next);
        end if;
        select r.* into v_next
        from pgonce.run r
        where r.kind = 'operation' and r.name = _try_key.scope and r.key = _try_key.key;
        if not found or _try_key.locked then    -- nothing is granted over a record that is not locked
            return pgonce._deny(v_run, 'busy', _try_key.owner);
        end if;
        v_run := v_next;
    end if;

    if v_run.nonce = _try_key.nonce and v_run.fingerprint is not distinct from _try_key.fingerprint then
        v_claim := pgonce._replay(v_run, _try_key.ttl, _try_key.owner);
        if v_claim.reason is not null then
            return v_claim;
        end if;
    end if;
    v_now := pgonce.clock();
    v_over := v_run.state = 'done' and v_run.keep_until <= v_now;
    if v_over or v_run.state = 'failed' or v_run.state = 'running' and v_run.expires_at <= v_now then
        v_job := pgonce._read_job(_try_key.scope);      -- it may be granted: what is defined now decides
        v_over := v_over or pgonce._run_reason(v_run, v_job.max_attempts, v_now) = 'exhausted'
            and coalesce(v_run.keep_until, v_run.expires_at + v_run.keep) <= v_now;
    end if;
    if v_over then
        v_run.attempt := 0;
        v_run.counted := true;
        v_run.fingerprint := _try_key.fingerprint;
    else
        if v_run.fingerprint is distinct from _try_key.fingerprint then
            raise exception using
                errcode = 'ON002',
                message = 'key ' || pgonce._quoted(v_run.key) || ' of scope ' || pgonce._quoted(v_run.name)
                    || ' is known with another fingerprint',
                hint = 'The key was used for another request before: give each request a key of its own.';
        end if;
        v_reason := pgonce._run_reason(v_run, v_job.max_attempts, v_now);
    end if;
    if v_reason is not null or not _try_key.locked then
        return pgonce._deny(
            v_run, v_reason, _try_key.owner,
            case v_reason when 'held' then v_run end,
            case v_reason when 'held' then v_run.expires_at when 'backoff' then v_run.retry_at end);
    end if;

    v_run := pgonce._attempt(
        v_run, v_job, pgonce._next_token(v_run.token), _try_key.ttl, _try_key.owner, _try_key.nonce, pgonce.clock());
    perform pgonce._write_attempt(v_run);
    return pgonce._granted(v_run);
end
$$;

comment on function pgonce._try_key(text, text, interval, text, text, uuid, boolean) is
    'One look at an operation, by reading (no reason: it may be granted) or under the lock.';
