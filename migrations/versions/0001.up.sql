-- The schema, the token sequence, the type that every claim returns, and the clock.

do $$
declare
    v_grantee text;
begin
    -- "create schema if not exists" would ask for the right to create schemas even where there is nothing to create.
    if to_regnamespace('pgonce') is null then
        create schema pgonce;
        for v_grantee in    -- of default privileges; grants.sql does so for all that follows
            select case when g.grantee = 0 then 'public' else pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(g.grantee)) end
            from pg_catalog.pg_namespace n, lateral pg_catalog.aclexplode(n.nspacl) g
            where n.nspname = 'pgonce' and g.grantee <> n.nspowner
        loop
            execute 'revoke all on schema pgonce from ' || v_grantee;
        end loop;
    end if;
    -- Functions that run with their owner's rights must not live where somebody else may change things.
    if not exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles o on o.oid = n.nspowner
                   where n.nspname = 'pgonce' and o.rolname = current_user) then
        raise exception using
            errcode = '42501',
            message = 'schema pgonce exists and belongs to another role than "' || current_user || '"',
            hint = 'Install as the owner of the schema, or drop the schema if it is not pgonce''s.';
    end if;
    if exists (
        select
        from pg_catalog.pg_namespace n, lateral pg_catalog.aclexplode(n.nspacl) granted
        where n.nspname = 'pgonce' and granted.privilege_type = 'CREATE' and granted.grantee <> n.nspowner
    ) then
        raise exception using
            errcode = '42501',
            message = 'others than its owner may create objects in schema pgonce',
            hint = 'Take that away first: revoke create on schema pgonce from ...';
    end if;
end
$$;

comment on schema pgonce is
    'PostgreSQL decides, once, who runs: leases, windows of schedules, and operations.';

create sequence pgonce.token_seq as bigint;

comment on sequence pgonce.token_seq is
    'Tells apart the tokens made within one millisecond; the tokens themselves come from the clock (see _next_token).';

create type pgonce.claim as (
    claimed      boolean,
    reason       text,
    name         text,
    key          text,
    token        bigint,
    attempt      integer,
    owner        text,
    expires_at   timestamptz,
    window_start timestamptz,
    window_end   timestamptz,
    retry_at     timestamptz,
    result       jsonb
);

comment on type pgonce.claim is
    'The answer to asking: a grant (claimed, with a token) or a denial (a reason; owner and expires_at tell of the present holder).';
comment on column pgonce.claim.claimed is 'True: it is yours. False: reason says why not.';
comment on column pgonce.claim.reason is
    'granted, or one of done, held, exhausted, backoff, skipped, ahead, late, overlap, busy.';
comment on column pgonce.claim.name is 'Job, scope, or lease name.';
comment on column pgonce.claim.key is
    'Start of the window (YYYY-MM-DDTHH:MI:SSZ), key of the operation, or number of the lease''s slot.';
comment on column pgonce.claim.token is 'The handle for every later call, and a fencing token; null when denied.';
comment on column pgonce.claim.attempt is 'Which attempt this is, from 1; when denied, how many there were. Null for a lease.';
comment on column pgonce.claim.owner is 'Label of the holder: yours when granted, the present holder''s (done: of who did it) when denied.';
comment on column pgonce.claim.expires_at is 'Until when the holder cannot be taken over.';
comment on column pgonce.claim.window_start is 'The fire time that opened the window.';
comment on column pgonce.claim.window_end is 'The next fire time.';
comment on column pgonce.claim.retry_at is 'When asking again could succeed, where that is known.';
comment on column pgonce.claim.result is 'The stored result, when reason is done and your role may see it.';

-- The one clock. Tests replace this function as the schema's owner; no setting shifts it.
-- Plain SQL without a set clause, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: this is it.
-- Raises: nothing.
create function pgonce.clock()
returns timestamptz
language sql
volatile
as $$
    select pg_catalog.clock_timestamp()
$$;

comment on function pgonce.clock() is 'The database''s clock, read after the row is locked; the only one pgonce knows.';

-- One row a job (windows of a schedule) or scope (operations): its settings, and what every grant of a window writes.
-- Heartbeats and mark_done never touch it. No column but the key is indexed, so that every update is HOT.

create table pgonce.job (
    job            text collate "C" not null,
    defined        boolean not null,
    schedule       text collate "C",
    timezone       text collate "C",
    compiled       bigint[],
    ttl            interval,
    overlap        text collate "C" not null,
    max_attempts   integer not null,
    start_deadline interval,
    early          interval not null,
    max_hold       interval,
    keep           interval not null,
    record_denials boolean not null,
    beginning      timestamptz,
    backfill       boolean not null,
    newest_start   timestamptz,
    newest_end     timestamptz,
    running        bigint[] not null,
    last_token     bigint not null,
    constraint job_pkey primary key (job),
    constraint job_overlap_check check (overlap in ('forbid', 'allow', 'replace')),
    constraint job_max_attempts_check check (max_attempts >= 1),
    constraint job_schedule_check check (num_nonnulls(schedule, timezone, compiled) in (0, 3)),
    constraint job_newest_check check (newest_start < newest_end)
) with (fillfactor = 50);

comment on table pgonce.job is 'Settings and state of a job or a scope; every grant of a window writes its row.';
comment on column pgonce.job.job is 'Name of the job, or scope of operations.';
comment on column pgonce.job.defined is 'Set by define_job: the stored schedule and zone bind every claim.';
comment on column pgonce.job.schedule is 'Cron expression, macro, or "every <interval>", as it was given.';
comment on column pgonce.job.timezone is 'Name of the schedule''s time zone.';
comment on column pgonce.job.compiled is 'The schedule as _compile made it; the first element carries the format''s version.';
comment on column pgonce.job.ttl is 'Default ttl of a claim; null: to the end of the window.';
comment on column pgonce.job.overlap is 'forbid, allow or replace: what a window does to one that still runs.';
comment on column pgonce.job.max_attempts is 'How often a window or an operation may be attempted.';
comment on column pgonce.job.start_deadline is 'How long after its start a window may still be claimed first; null: to its end.';
comment on column pgonce.job.early is 'How long before its start a call means the coming window, not the present one.';
comment on column pgonce.job.max_hold is 'How long a grant can be kept alive by renewing; null: for ever.';
comment on column pgonce.job.keep is 'How long finished runs are kept at least.';
comment on column pgonce.job.record_denials is 'Whether each denial adds a row to the table denial.';
comment on column pgonce.job.beginning is 'No window that starts before it is ever claimed.';
comment on column pgonce.job.backfill is
    'The beginning was set by a first grant, not by a definition or an operator: an explicit window_start may move it back.';
comment on column pgonce.job.newest_start is 'Start of the newest window granted; saves the search for the window now open.';
comment on column pgonce.job.newest_end is 'End of the newest window granted.';
comment on column pgonce.job.running is
    'Tokens of the runs that ran when the last window was granted, and its own: every run that a grant may exclude.';
comment on column pgonce.job.last_token is 'The greatest token given for a window of the job; it outlives pruned runs.';

-- The record of a window or an operation: did it happen? A heartbeat changes expires_at and mark_done changes state,
-- neither of which is indexed: both are HOT updates. The unique index on token makes a takeover a key update, which
-- waits for (is skipped by) the "for key share" lock of assert_held, while a heartbeat passes it.

create table pgonce.run (
    kind           text collate "C" not null,
    name           text collate "C" not null,
    key            text collate "C" not null,
    state          text collate "C" not null,
    token          bigint not null,
    burnt          boolean not null,
    attempt        integer not null,
    counted        boolean not null,
    owner          text,
    role           text collate "C" not null,
    nonce          uuid,
    fingerprint    text collate "C",
    claimed_at     timestamptz not null,
    expires_at     timestamptz not null,
    finished_at    timestamptz,
    ttl            interval not null,
    max_until      timestamptz,
    retry_at       timestamptz,
    keep           interval not null,
    keep_until     timestamptz,
    record_denials boolean not null,
    window_start   timestamptz,
    window_end     timestamptz,
    result         jsonb,
    error          text,
    constraint run_pkey primary key (kind, name, key),
    constraint run_token_key unique (token),
    constraint run_kind_check check (kind in ('window', 'operation')),
    constraint run_state_check check (state in ('running', 'done', 'failed', 'replaced')),
    constraint run_finished_check check ((state = 'running') = (finished_at is null)),
    constraint run_window_check check ((kind = 'window') = (num_nonnulls(window_start, window_end) = 2))
) with (fillfactor = 80);

-- The window that answered a question. (An operation's or a lease's is found by its key.)
create index run_nonce_idx on pgonce.run (nonce) where kind = 'window' and nonce is not null;

comment on table pgonce.run is 'The record of a window or an operation, kept to answer: did it happen?';
comment on column pgonce.run.kind is 'window or operation; part of the key, so that an operation cannot be a window.';
comment on column pgonce.run.name is 'Job or scope.';
comment on column pgonce.run.key is 'Start of the window as YYYY-MM-DDTHH:MI:SSZ, or the operation''s key.';
comment on column pgonce.run.state is 'running, done, failed, or replaced by a newer window.';
comment on column pgonce.run.token is 'Token of the last grant, or a burnt one that nobody has.';
comment on column pgonce.run.burnt is 'Nobody was given this token: whoever reads it holds nothing.';
comment on column pgonce.run.attempt is 'Number of the last attempt, from 1.';
comment on column pgonce.run.counted is
    'False: this attempt failed for no fault of the work (a deploy stopped it), so the next one has the same number.';
comment on column pgonce.run.owner is 'Label of the last holder; never identity.';
comment on column pgonce.run.role is 'Name of the role the token was granted to, as a dump keeps its grants: in another cluster the number is somebody else''s.';
comment on column pgonce.run.nonce is 'The question that was answered by the last grant; null once burnt.';
comment on column pgonce.run.fingerprint is 'Stands for the request of an operation; another one for the same key is refused.';
comment on column pgonce.run.claimed_at is 'When the last attempt was granted.';
comment on column pgonce.run.expires_at is 'Until when the holder cannot be taken over.';
comment on column pgonce.run.finished_at is 'When the last attempt was finished (done, failed or replaced).';
comment on column pgonce.run.ttl is 'The ttl granted; the default of renew_lease.';
comment on column pgonce.run.max_until is 'End of max_hold: no renewal passes it; null: none.';
comment on column pgonce.run.retry_at is 'When a failed run may be claimed again.';
comment on column pgonce.run.keep is 'How long the record is kept at least once finished, as defined at the grant.';
comment on column pgonce.run.keep_until is 'Until when the finished record is kept at least.';
comment on column pgonce.run.record_denials is 'Whether each denial adds a row to the table denial, as defined at the grant.';
comment on column pgonce.run.window_start is 'The fire time that opened the window.';
comment on column pgonce.run.window_end is 'The next fire time.';
comment on column pgonce.run.result is 'What mark_done stored.';
comment on column pgonce.run.error is 'What the last mark_failed stored.';

-- The right to work under a name now. All slots of a name are inserted when it is first asked for, and stay: a
-- released lease keeps its row, and so the floor under its next token. expires_at is in no index: heartbeats are HOT.

create table pgonce.lease (
    name        text collate "C" not null,
    slot        integer not null,
    slots       integer not null,
    held        boolean not null default false,
    token       bigint,
    owner       text,
    role        text collate "C",
    nonce       uuid,
    ttl         interval,
    acquired_at timestamptz,
    expires_at  timestamptz not null default '-infinity',
    max_until   timestamptz,
    min_until   timestamptz,
    constraint lease_pkey primary key (name, slot),
    constraint lease_token_key unique (token),
    constraint lease_slots_check check (slots between 1 and 1000),
    constraint lease_held_check check (not held or num_nonnulls(token, role, ttl, acquired_at) = 4)
) with (fillfactor = 50);

-- One question is answered with one slot, even when it is asked twice at once.
create unique index lease_nonce_key on pgonce.lease (name, role, nonce) where nonce is not null;

comment on table pgonce.lease is 'Who works now under a name: one row a slot.';
comment on column pgonce.lease.name is 'Name of the lease.';
comment on column pgonce.lease.slot is 'Number of the slot, from 1. Slots above the present number of slots are out of use.';
comment on column pgonce.lease.slots is 'Number of slots of the name, the same in all its rows.';
comment on column pgonce.lease.held is 'Whether the token holds the slot: until released, taken over or burnt.';
comment on column pgonce.lease.token is 'Token of the last grant, or a burnt one; null: never granted.';
comment on column pgonce.lease.owner is 'Label of the last holder; never identity.';
comment on column pgonce.lease.role is 'Name of the role the token was granted to, as a dump keeps its grants: in another cluster the number is somebody else''s.';
comment on column pgonce.lease.nonce is 'The question that was answered by the last grant; null once burnt.';
comment on column pgonce.lease.ttl is 'The ttl granted; the default of renew_lease.';
comment on column pgonce.lease.acquired_at is 'When the last grant was made.';
comment on column pgonce.lease.expires_at is 'Until when nobody else is granted the slot.';
comment on column pgonce.lease.max_until is 'End of max_hold: no renewal passes it; null: none.';
comment on column pgonce.lease.min_until is 'End of min_hold: not free before, even when released; null: none.';

-- Who was denied, when and why, for jobs and scopes with record_denials. Unlogged: it may be lost, and costs little.

create unlogged table pgonce.denial (
    at     timestamptz not null,
    name   text collate "C" not null,
    key    text collate "C",
    owner  text,
    reason text collate "C" not null
);

comment on table pgonce.denial is 'Denials of jobs and scopes defined with record_denials; lost when the server crashes.';
comment on column pgonce.denial.at is 'When the claim was denied.';
comment on column pgonce.denial.name is 'Job or scope.';
comment on column pgonce.denial.key is 'Start of the window, or key of the operation; null: no window was found.';
comment on column pgonce.denial.owner is 'Label of who asked.';
comment on column pgonce.denial.reason is 'Why: the reason of the claim.';

-- Refuses a required argument that is null.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023, always.
create function pgonce._refuse_null(
    argument text,
    hint     text
)
returns void
language plpgsql
immutable
as $$
begin
    raise exception using
        errcode = '22023',
        message = _refuse_null.argument || ' must not be null',
        hint = _refuse_null.hint;
end
$$;

comment on function pgonce._refuse_null(text, text) is 'Raises 22023 for a required argument that is null.';

-- A value that is refused, as a message quotes it: as JSON, so that nothing in it is taken for the message, and not more
-- than 60 characters of it.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._quoted(value text)
returns text
language sql
stable
as $$
    select pg_catalog.to_json(pg_catalog.left(_quoted.value, 60))::text
$$;

comment on function pgonce._quoted(text) is 'A refused value as messages quote it: JSON, at most 60 characters.';

-- Refuses a text that cannot be a name, a key or a label: null, empty, padded, too long, or with control characters.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_name(
    argument text,
    value    text,
    bytes    integer
)
returns void
language plpgsql
stable
as $$
declare
    -- Elsewhere the characters from 0x80 to 0x9f are parts of letters, or letters.
    v_control text := case when pg_catalog.getdatabaseencoding() = 'UTF8'
        then E'[\\u0001-\\u001f\\u007f-\\u009f]' else E'[\\u0001-\\u001f\\u007f]' end;
    v_fault text := case
        when _check_name.value is null then 'must not be null'
        when _check_name.value = '' then 'must not be empty'
        when octet_length(_check_name.value) > _check_name.bytes then
            'is too long (' || octet_length(_check_name.value) || ' bytes)'
        when _check_name.value <> btrim(_check_name.value) then 'begins or ends with a space'
        when _check_name.value ~ v_control then 'contains a control character'
    end;
begin
    if v_fault is not null then
        raise exception using
            errcode = '22023',
            message = _check_name.argument || ' ' || v_fault
                || coalesce(': ' || pgonce._quoted(_check_name.value), ''),
            hint = 'Give ' || _check_name.argument || ' as 1 to ' || _check_name.bytes
                || ' bytes of text without control characters and without spaces around it.';
    end if;
end
$$;

comment on function pgonce._check_name(text, text, integer) is 'Raises 22023 unless value can be a name, a key or a label.';

-- Refuses an instant that no schedule reaches: null, infinite, or outside the years 1900 to 9998.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_instant(
    argument text,
    value    timestamptz
)
returns void
language plpgsql
stable
as $$
begin
    -- 1900-01-01 and 9999-01-01 in UTC, written so that no setting of the session matters
    if _check_instant.value >= to_timestamp(-2208988800) and _check_instant.value < to_timestamp(253370764800) then
        return;
    end if;
    raise exception using
        errcode = '22023',
        message = _check_instant.argument
            || case when _check_instant.value is null then ' must not be null'
                    when not isfinite(_check_instant.value) then ' must be finite: ' || _check_instant.value
                    else ' is out of range: ' || _check_instant.value end,
        hint = 'Give ' || _check_instant.argument || ' as a timestamptz from the year 1900 to the year 9998.';
end
$$;

comment on function pgonce._check_instant(text, timestamptz) is
    'Raises 22023 unless value is an instant of the years 1900 to 9998.';

-- Refuses a ttl above max_hold; null on either side passes.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_max_hold(
    ttl      interval,
    max_hold interval
)
returns void
language plpgsql
immutable
as $$
begin
    if _check_max_hold.ttl > _check_max_hold.max_hold then
        raise exception using
            errcode = '22023',
            message = 'ttl ' || _check_max_hold.ttl || ' is above max_hold ' || _check_max_hold.max_hold,
            hint = 'Give a ttl of at most max_hold: no grant can be held longer than that.';
    end if;
end
$$;

comment on function pgonce._check_max_hold(interval, interval) is 'Raises 22023 for a ttl above max_hold.';

-- Turns an interval into fixed seconds (a day is 24 h), so that adding it to an instant depends on no time zone.
-- Null stays null. Allowed: 100 ms to 366 days, and 0 where it means none.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._duration(
    argument text,
    value    interval,
    zero     boolean
)
returns interval
language plpgsql
immutable
as $$
declare
    v_days    integer;
    v_seconds numeric;
    v_fault   text;
begin
    if _duration.value is null then
        return null;
    end if;
    if not isfinite(_duration.value) then
        v_fault := 'must be finite';
    elsif extract(year from _duration.value) <> 0 or extract(month from _duration.value) <> 0 then
        v_fault := 'must not contain months or years';
    else
        v_days := extract(day from _duration.value);
        v_seconds := extract(epoch from _duration.value);
        if v_seconds < 0 then
            v_fault := 'must not be negative';
        elsif v_days < 0 or v_seconds < v_days * 86400::bigint then
            v_fault := 'must not mix signs';
        elsif v_seconds > 366 * 86400 then
            v_fault := 'is too long';
        elsif v_seconds < 0.1 and not (_duration.zero and v_seconds = 0) then
            v_fault := 'is too short';
        end if;
    end if;
    if v_fault is not null then
        raise exception using
            errcode = '22023',
            message = _duration.argument || ' ' || v_fault || ': ' || _duration.value,
            hint = 'Give ' || _duration.argument || ' as 100 milliseconds to 366 days of weeks, days, hours, minutes or seconds'
                || case when _duration.zero then ', or 0 for none.' else '.' end;
    end if;
    return make_interval(secs => v_seconds);
end
$$;

comment on function pgonce._duration(text, interval, boolean) is
    'The same span in fixed seconds; raises 22023 unless it is 100 ms to 366 days (or 0 where that means none).';

-- Refuses to claim or to hold on a read-only server: a pool that points to a replica must not look like a host that always loses.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 25006.
create function pgonce._require_writable()
returns void
language plpgsql
stable
as $$
begin
    if current_setting('transaction_read_only')::boolean then
        raise exception using
            errcode = '25006',
            message = 'nothing can be claimed, held or finished in a read-only transaction',
            detail = case when pg_is_in_recovery() then 'This server is a standby.'
                          else 'transaction_read_only is on.' end,
            hint = 'Connect to the primary (libpq: target_session_attrs=read-write) in a read-write transaction.';
    end if;
end
$$;

comment on function pgonce._require_writable() is 'Raises 25006 where nothing can be claimed, held or finished.';

-- The name of the role that asks: the one of "set role", else the session's. (current_user is the owner of the calling
-- function.) The setting keeps the name as it was: when that role has been renamed since, another one may have it.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 42501 when the session may not take the role of that name.
create function pgonce._caller()
returns text
language plpgsql
stable
as $$
declare
    v_role text := current_setting('role');
begin
    if v_role = 'none' then
        return session_user;
    end if;
    if exists (
        select from pg_catalog.pg_roles r where r.rolname = v_role and pg_has_role(session_user, r.oid, 'member')
    ) then
        return v_role;
    end if;
    raise exception using
        errcode = '42501',
        message = 'the role of "set role" is no role of this session any more: ' || pgonce._quoted(v_role),
        hint = 'It was renamed, dropped or taken away since: call reset role, then set role again.';
end
$$;

comment on function pgonce._caller() is 'The name of the role that asks: the one of "set role", else session_user.';

-- Whether a token granted to the role of this name works for the caller: that role itself, its members, members of the
-- schema's owner. A role since dropped or renamed matches nobody else.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: see _caller.
create function pgonce._may_use(role text)
returns boolean
language plpgsql
stable
as $$
declare
    v_caller name := pgonce._caller();
begin
    if _may_use.role = v_caller then
        return true;
    end if;
    return exists (
        select
        from pg_catalog.pg_roles granted
        where (granted.rolname = _may_use.role
               or granted.oid = (select n.nspowner from pg_catalog.pg_namespace n where n.nspname = 'pgonce'))
          and pg_has_role(v_caller, granted.oid, 'member'));
end
$$;

comment on function pgonce._may_use(text) is 'Whether a token granted to the role of this name works for the caller.';

-- Whether the caller may see a result stored under this role: for the views, which run with the caller's rights and
-- search_path, so this one is a security definer with a path of its own, as a public function is.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._may_see(role text)
returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgonce._may_use(_may_see.role);
end
$$;

comment on function pgonce._may_see(text) is 'Whether the caller may see a result stored under this role.';

-- The label of a holder: the one given, else made from the client's application name and address.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._owner(owner text)
returns text
language sql
stable
as $$
    select coalesce(_owner.owner,
        coalesce(nullif(pg_catalog.current_setting('application_name'), ''), 'unknown')
            || '@' || coalesce(pg_catalog.host(pg_catalog.inet_client_addr()), 'local'))
$$;

comment on function pgonce._owner(text) is 'The label given, else application name @ address of the client.';

-- A new token, greater than the floor, below 2^53, made from the clock so that it keeps growing where a counter would
-- start again (a pruned row, a failover to a standby that lagged, a restored backup): milliseconds since 2025-01-01
-- (or one more than the floor's) times 4096, plus a sequence that tells apart the tokens of one millisecond. (The Python
-- client takes from it when a grant was made, to notice a ttl that was cut.)
-- Locks: nothing. Writes: the sequence token_seq. Clock: read.
-- Raises: nothing.
create function pgonce._next_token(floor bigint)
returns bigint
language sql
volatile
as $$
    select greatest(pg_catalog.floor((extract(epoch from pgonce.clock()) - 1735689600) * 1000)::bigint,
                    coalesce(_next_token.floor, 0) / 4096 + 1) * 4096
        + pg_catalog.mod(pg_catalog.nextval('pgonce.token_seq'), 4096)
$$;

comment on function pgonce._next_token(bigint) is 'A new token, greater than the one given and than every older one by the clock.';

-- What every yes does to its transaction: its commit waits for the flush (and for the standby, where one is
-- synchronous), and idling in it ends with the ttl. Nothing is lowered that is stricter already. The settings are made
-- with set_config in the body: a "set" clause on a function has no effect at commit.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._secure(ttl interval)
returns void
language plpgsql
volatile
as $$
declare
    v_idle text := current_setting('idle_in_transaction_session_timeout');
    v_ttl  interval := least(_secure.ttl, interval '24 days');  -- the setting's greatest value is 2^31 - 1 ms
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if v_idle = '0' or v_idle::interval > v_ttl then
        perform set_config('idle_in_transaction_session_timeout',
                           floor(extract(epoch from v_ttl) * 1000)::text, true);
    end if;
end
$$;

comment on function pgonce._secure(interval) is
    'Makes the transaction''s commit durable and lets it idle no longer than the ttl.';

-- Raises ON001: the token holds nothing (any more), or not for this role.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: ON001, always.
create function pgonce._not_held(token bigint)
returns void
language plpgsql
immutable
as $$
begin
    raise exception using
        errcode = 'ON001',
        message = 'token ' || coalesce(_not_held.token::text, 'null') || ' holds nothing',
        detail = 'It was released or finished, somebody else took over, it was granted to another role, or never granted.',
        hint = 'Stop the work and roll it back: somebody else may be doing it. Claim again to go on.';
end
$$;

comment on function pgonce._not_held(bigint) is 'Raises ON001 for a token that holds nothing.';

-- Refuses a schedule.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023, always.
create function pgonce._refuse_schedule(
    schedule text,
    fault    text,
    hint     text
)
returns void
language plpgsql
immutable
as $$
begin
    raise exception using
        errcode = '22023',
        message = 'schedule ' || pgonce._quoted(_refuse_schedule.schedule) || ' ' || _refuse_schedule.fault,
        hint = _refuse_schedule.hint;
end
$$;

comment on function pgonce._refuse_schedule(text, text, text) is 'Raises 22023 for a schedule.';

-- Refuses one item of a cron expression, with the hint that fits.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023, always.
create function pgonce._refuse_item(
    schedule text,
    field    integer,
    item     text
)
returns void
language plpgsql
immutable
as $$
declare
    v_field constant text :=
        (array['minute', 'hour', 'day of the month', 'month', 'day of the week'])[_refuse_item.field];
    v_range constant text :=
        (array['0 to 59', '0 to 23', '1 to 31', '1 to 12 or JAN to DEC', '0 to 7 or SUN to SAT (0 and 7 are Sunday)'])
        [_refuse_item.field];
    v_text  constant text := upper(_refuse_item.item collate "C");
    v_name  constant text := substring(v_text from '([A-Z]{3})[A-Z]');
begin
    perform pgonce._refuse_schedule(
        _refuse_item.schedule,
        'has ' || case when v_text = '' then 'an empty item' else 'the item ' || pgonce._quoted(_refuse_item.item) end
            || ' in the ' || v_field,
        case
            when v_text = '' then 'Put a value between two commas, and none at either end: 1,15.'
            when v_text ~ '[?]' then 'Write * where other dialects write ?.'
            when v_text ~ '~|^[HR]($|[/(])' then
                'H, R and ~ mean another time on each host, but a window has one start: choose a value, such as 17.'
            when v_text ~ '(^|[-/])[+-]' then 'Values have no sign: ' || v_range || '.'
            when pgonce._value(_refuse_item.field, v_name) is not null then
                'Names have three letters: ' || v_name || '.'
            when _refuse_item.field = 3 and v_text ~ '[LW]' then
                'Around L and W the day of the month knows: L, L-1 to L-30, LW, 1W to 31W.'
            when _refuse_item.field = 5 and v_text ~ '[L#]' then
                'The last Friday of the month is 5L or FRIL, the first one 5#1 or FRI#1 (1 to 5).'
            when v_text ~ 'L|W$' then 'L and W belong in the day of the month; 5L (last Friday) in the day of the week.'
            when v_text ~ '#' then '# belongs in the day of the week: 5#1 is the first Friday.'
            else 'The ' || v_field || ' is ' || v_range || ', alone or as *, */2, 1-5, 1-5/2 or 1,3.'
        end);
end
$$;

comment on function pgonce._refuse_item(text, integer, text) is 'Raises 22023 for one item of a cron expression.';

-- Refuses a schedule for what its text as a whole shows, with the hint that fits; _compile looks into the fields.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_schedule(schedule text)
returns void
language plpgsql
immutable
as $$
declare
    v_text    constant text := upper(left(_check_schedule.schedule, 201) collate "C");
    v_fields  constant integer := cardinality(regexp_split_to_array(v_text, E'[ \t]+'));
    v_refusal constant text[] := case
        when v_text = '' then
            array['is empty', 'Write a schedule: 0 3 * * *, @daily or every 15 minutes.']
        when length(v_text) > 200 then
            array['has ' || length(_check_schedule.schedule) || ' characters', 'At most 200 characters: make two jobs of it.']
        when v_text ~ E'[^ -~\t]' then
            array['has a character that is not printable ASCII',
                  'Use letters, digits and * , - / # between spaces or tabs.']
        when v_text ~ E'^[ \t]|[ \t]$' then
            array['begins or ends with a space', 'Take it away: schedules are compared byte for byte.']
        when v_text ~ '^(CRON_)?TZ=' then
            array['names a time zone', 'Give the zone by itself: timezone => ''Europe/Berlin''.']
        when v_text ~ E'(^|[ \t])#' then
            array['contains a comment', 'Leave the comment out.']
        when v_text ~ E'^EVERY([ \t]|$)' then
            null
        when v_text ~ '^@EVERY' then
            array['is no macro', 'Write it without the @: ' || substring(_check_schedule.schedule from 2)]
        when v_text = '@REBOOT' then
            array['names no time', 'A reboot opens no window: start the command when the system starts.']
        when v_text in ('@YEARLY', '@ANNUALLY', '@MONTHLY', '@WEEKLY', '@DAILY', '@MIDNIGHT', '@HOURLY') then
            null
        when v_text ~ '^@' then
            array['is no macro', 'There are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly.']
        when v_fields in (6, 7) then
            array['has ' || v_fields || ' fields',
                  'Five fields: minute hour day month weekday. No seconds (write every 30 seconds) and no year.']
        when v_fields <> 5 then
            array['has ' || v_fields || case when v_fields = 1 then ' field' else ' fields' end,
                  'Five fields: minute hour day month weekday; or @daily, or every 15 minutes.']
    end;
begin
    if _check_schedule.schedule is null then
        perform pgonce._refuse_null('schedule', 'Give schedule as text: 0 3 * * *, @daily or every 15 minutes.');
    elsif v_refusal is not null then
        perform pgonce._refuse_schedule(_check_schedule.schedule, v_refusal[1], v_refusal[2]);
    end if;
end
$$;

comment on function pgonce._check_schedule(text) is 'Raises 22023 for a schedule whose text shows that it is none.';

-- The whole seconds of "every <interval>"; a day has 24 hours.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._every(schedule text)
returns bigint
language plpgsql
stable
as $$
declare
    v_text    constant text := ltrim(substring(_every.schedule from 6), ' ' || chr(9));
    v_span    interval;
    v_units   interval;
    v_seconds double precision;
    v_fault   text;
begin
    -- What a minus means depends on IntervalStyle; without signs nothing does.
    if v_text !~ '[+-]' then
        begin
            v_span := v_text::interval;
            -- Half a month would be 15 days: with each number replaced by 1, months and years stay what they are.
            v_units := regexp_replace(v_text, '[0-9.]+', '1', 'g')::interval;
        exception when data_exception then
            v_span := null;
        end;
    end if;
    v_seconds := date_part('epoch', v_span);
    v_fault := case
        when v_text ~ '[+-]' then 'has a sign'
        when v_units is null then 'names no interval'
        when not isfinite(v_span) then 'never ends'
        when date_part('year', v_units) <> 0 or date_part('month', v_units) <> 0 then 'counts in months or years'
        when v_seconds < 1 then 'is shorter than a second'
        when v_seconds > 366 * 86400 then 'is longer than 366 days'
        when v_seconds <> trunc(v_seconds) then 'does not make whole seconds'
    end;
    if v_fault is not null then
        perform pgonce._refuse_schedule(_every.schedule, v_fault, case v_fault
            when 'counts in months or years' then 'Write @monthly or @yearly, or every 30 days.'
            else 'Write every and 1 second to 366 days, in whole seconds: every 90 seconds, every 2 hours.' end);
    end if;
    return v_seconds::bigint;
end
$$;

comment on function pgonce._every(text) is 'The whole seconds of an "every" schedule.';

-- The number that one value of a field means: digits, or the three-letter name of a month or a day. Null: neither.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._value(
    field integer,
    value text
)
returns integer
language plpgsql
immutable
as $$
begin
    return case
        when _value.value ~ '^[0-9]{1,2}$' then _value.value::integer
        when _value.field = 4 then array_position(
            array['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'], _value.value)
        when _value.field = 5 then array_position(
            array['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'], _value.value) - 1
    end;
end
$$;

comment on function pgonce._value(integer, text) is
    'The number that one value of a cron field means; null when it means none.';

-- The values that one item of a cron field names, as bits: "*", a value or a range, and a step.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._item(
    schedule text,
    field    integer,
    item     text
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_min   constant integer := (array[0, 0, 1, 1, 0])[_item.field];
    v_max   constant integer := (array[59, 23, 31, 12, 6])[_item.field];
    v_limit constant integer := (array[59, 23, 31, 12, 7])[_item.field];   -- of values and steps
    v_part  constant text[] := regexp_match(upper(_item.item collate "C"),
        '^([*]|[0-9]{1,2}|[A-Z]{3})(-([0-9]{1,2}|[A-Z]{3}))?(/([0-9]{1,4}))?$');
    v_low   integer;
    v_high  integer;
    v_step  integer := coalesce(v_part[5]::integer, 1);
    v_bits  bigint := 0;
begin
    if v_part[1] = '*' and v_part[3] is null then
        v_low := v_min;
        v_high := v_max;
    else
        v_low := pgonce._value(_item.field, v_part[1]);
        if _item.field = 5 and v_low = 7 and v_part[3] is null then
            v_low := 0;
        end if;
        v_high := case
            when _item.field = 5 and v_part[3] = 'SUN' and v_low > 0 then 7   -- FRI-SUN
            when v_part[3] is not null then pgonce._value(_item.field, v_part[3])
            when v_part[5] is not null then v_max
            else v_low end;
    end if;
    if (v_low between v_min and v_limit and v_high between v_min and v_limit) is not true then
        perform pgonce._refuse_item(_item.schedule, _item.field, _item.item);
    elsif v_step not between 1 and v_limit or length(v_part[5]) > 2 then
        perform pgonce._refuse_schedule(
            _item.schedule,
            'has the step ' || v_part[5] || ' in ' || pgonce._quoted(_item.item),
            case when v_step > v_limit and _item.field < 4
                then 'Write: every ' || v_step || (array[' minutes', ' hours', ' days'])[_item.field] || '.'
                else 'A step is 1 to ' || v_limit || ' here.' end);
    elsif v_low > v_high then
        perform pgonce._refuse_schedule(
            _item.schedule,
            'has the reversed range ' || pgonce._quoted(_item.item),
            'Write ' || case when v_low > v_max then '' else v_part[1] || '-' || v_max || ',' end
                || v_min || '-' || v_part[3] || '.');
    end if;
    for v_value in v_low .. v_high by v_step loop
        v_bits := v_bits | (1::bigint << case when v_value > v_max then 0 else v_value end);
    end loop;
    return v_bits;
end
$$;

comment on function pgonce._item(text, integer, text) is 'The values that one item of a cron field names, as bits.';

-- The days that one item of the day of the month names in each of the 28 kinds of months (28 to 31 days long, beginning
-- with a Sunday to a Saturday), as bits; added to the days given.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._month_days(
    days     bigint[],
    schedule text,
    item     text
)
returns bigint[]
language plpgsql
immutable
as $$
declare
    v_days    bigint[] := _month_days.days;
    v_last    constant text[] := regexp_match(upper(_month_days.item collate "C"), '^L(-([0-9]{1,2}))?$');
    v_near    constant text[] := regexp_match(upper(_month_days.item collate "C"), '^(L|[0-9]{1,2})W$');
    v_number  constant integer := coalesce(v_last[2], nullif(v_near[1], 'L'))::integer;   -- null: the last day
    v_set     bigint;
    v_length  integer;
    v_day     integer;
    v_weekday integer;
begin
    if v_last is null and v_near is null then
        v_set := pgonce._item(_month_days.schedule, 3, _month_days.item);
    elsif v_number not between 1 and (case when v_last is null then 31 else 30 end) then
        perform pgonce._refuse_item(_month_days.schedule, 3, _month_days.item);
    end if;
    for v_kind in 1 .. 28 loop
        v_length := 28 + (v_kind - 1) / 7;
        if v_set is null then
            v_day := case when v_last is null then coalesce(v_number, v_length)
                          else v_length - coalesce(v_number, 0) end;
            v_weekday := mod(v_kind - 1 + v_day - 1, 7);   -- 0: Sunday
            v_days[v_kind] := v_days[v_kind] | case
                when v_day not between 1 and v_length then 0
                when v_near is null or v_weekday between 1 and 5 then 1::bigint << v_day
                when v_weekday = 6 then 1::bigint << case when v_day = 1 then 3 else v_day - 1 end
                else 1::bigint << case when v_day = v_length then v_day - 2 else v_day + 1 end
            end;
        else
            v_days[v_kind] := v_days[v_kind] | (v_set & ((2::bigint << v_length) - 1));
        end if;
    end loop;
    return v_days;
end
$$;

comment on function pgonce._month_days(bigint[], text, text) is
    'The days that one item of the day of the month names in each kind of month, added to those given.';

-- The days that one item of the day of the week names in each of the 28 kinds of months (28 to 31 days long, beginning
-- with a Sunday to a Saturday), as bits; added to the days given.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._week_days(
    days     bigint[],
    schedule text,
    item     text
)
returns bigint[]
language plpgsql
immutable
as $$
declare
    v_days    bigint[] := _week_days.days;
    v_part    constant text[] := regexp_match(upper(_week_days.item collate "C"),
        '^([0-9]{1,2}|[A-Z]{3})(L|#([0-9]{1,2}))$');
    v_weekday constant integer := pgonce._value(5, v_part[1]);
    v_which   constant integer := v_part[3]::integer;   -- null: the last one
    v_set     bigint;
    v_bits    bigint;
    v_length  integer;
    v_first   integer;
    v_day     integer;
begin
    if v_part is null then
        v_set := pgonce._item(_week_days.schedule, 5, _week_days.item);
    elsif (v_weekday between 0 and 7 and coalesce(v_which, 1) between 1 and 5) is not true then
        perform pgonce._refuse_item(_week_days.schedule, 5, _week_days.item);
    end if;
    for v_kind in 1 .. 28 loop
        v_length := 28 + (v_kind - 1) / 7;
        v_first := mod(v_kind - 1, 7);   -- 0: Sunday
        if v_set is null then
            v_day := 1 + mod(v_weekday + 7 - v_first, 7) + 7 * (coalesce(v_which, 5) - 1);
            if v_which is null and v_day > v_length then
                v_day := v_day - 7;
            end if;
            v_days[v_kind] := v_days[v_kind] | case when v_day > v_length then 0 else 1::bigint << v_day end;
        else
            -- the week from the 1st on, laid end to end five times: bits 1, 8, 15, 22 and 29 are 541098242
            v_bits := ((v_set >> v_first) | (v_set << (7 - v_first))) & 127;
            v_days[v_kind] := v_days[v_kind] | ((v_bits * 541098242) & ((2::bigint << v_length) - 1));
        end if;
    end loop;
    return v_days;
end
$$;

comment on function pgonce._week_days(bigint[], text, text) is
    'The days that one item of the day of the week names in each kind of month, added to those given.';

-- The number of the lowest bit that is set (0 is the last one). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._lowest(bits bigint)
returns integer
language sql
immutable
as $$
    select bit_count(((_lowest.bits & - _lowest.bits) - 1)::bit(64))::integer
$$;

comment on function pgonce._lowest(bigint) is 'The number of the lowest bit that is set.';

-- The number of the highest bit that is set (0 is the last one). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._highest(bits bigint)
returns integer
language sql
immutable
as $$
    select 64 - position(B'1' in _highest.bits::bit(64))
$$;

comment on function pgonce._highest(bigint) is 'The number of the highest bit that is set.';

-- Parses a schedule into the numbers that the search works on:
-- [1] 256 * version of this format + 1 repeat + 2 move (see _window) + 4 every day + 8 every interval;
-- every: [2] seconds;
-- cron, sets as bits: [2] minutes, [3] hours, [4] months, [5] and [6] first and last second of a day to fire at,
-- [7..34] days in each of the 28 kinds of months: [7 + 7 * (length - 28) + weekday of the 1st].
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._compile(schedule text)
returns bigint[]
language plpgsql
stable
as $$
declare
    v_all_hours  constant bigint := (1::bigint << 24) - 1;
    v_all_months constant bigint := (1::bigint << 13) - 2;
    v_can_last   constant bigint[] := array[4, 4, 2640, 5546]::bigint[];   -- months that can last 28, 29, 30, 31 days
    v_fields     text[];
    v_item       text;
    v_sets       bigint[] := array_fill(0::bigint, array[4]);
    v_dom        bigint[] := array_fill(0::bigint, array[28]);
    v_dow        bigint[] := v_dom;
    v_fires      boolean := false;
    v_daily      boolean := true;
begin
    perform pgonce._check_schedule(_compile.schedule);
    if upper(_compile.schedule collate "C") ~ E'^EVERY([ \t]|$)' then
        return array[256 + 8, pgonce._every(_compile.schedule)];
    end if;
    v_fields := regexp_split_to_array(case lower(_compile.schedule collate "C")
        when '@yearly' then '0 0 1 1 *'
        when '@annually' then '0 0 1 1 *'
        when '@monthly' then '0 0 1 * *'
        when '@weekly' then '0 0 * * 0'
        when '@daily' then '0 0 * * *'
        when '@midnight' then '0 0 * * *'
        when '@hourly' then '0 * * * *'
        else _compile.schedule end, E'[ \t]+');
    for v_field in 1 .. 5 loop
        foreach v_item in array string_to_array(v_fields[v_field], ',') loop
            case v_field
                when 3 then v_dom := pgonce._month_days(v_dom, _compile.schedule, v_item);
                when 5 then v_dow := pgonce._week_days(v_dow, _compile.schedule, v_item);
                else v_sets[v_field] := v_sets[v_field] | pgonce._item(_compile.schedule, v_field, v_item);
            end case;
        end loop;
    end loop;
    -- Both day fields must match where the text of one begins with a star, else one of them: as cron has it.
    for v_kind in 1 .. 28 loop
        v_dom[v_kind] := case when left(v_fields[3], 1) = '*' or left(v_fields[5], 1) = '*'
            then v_dom[v_kind] & v_dow[v_kind] else v_dom[v_kind] | v_dow[v_kind] end;
        v_daily := v_daily and v_dom[v_kind] = (2::bigint << (28 + (v_kind - 1) / 7)) - 2;
        v_fires := v_fires or v_dom[v_kind] > 0 and v_sets[4] & v_can_last[1 + (v_kind - 1) / 7] > 0;
    end loop;
    if not v_fires then
        perform pgonce._refuse_schedule(
            _compile.schedule,
            'never fires',
            'No month named has such a day; the last day of a month is L: 0 0 L 2 *.');
    end if;
    return array[
        256
            + case when v_sets[2] = v_all_hours or left(v_fields[1], 1) = '*' then 1 else 0 end
            + case when v_sets[2] <> v_all_hours then 2 else 0 end
            + case when v_daily and v_sets[4] = v_all_months then 4 else 0 end,
        v_sets[1],
        v_sets[2],
        v_sets[4],
        pgonce._lowest(v_sets[2]) * 3600 + pgonce._lowest(v_sets[1]) * 60,
        pgonce._highest(v_sets[2]) * 3600 + pgonce._highest(v_sets[1]) * 60
    ] || v_dom;
end
$$;

comment on function pgonce._compile(text) is 'Parses a schedule into the numbers that the search works on.';

-- Refuses a time zone that is not an exact name of a place: PostgreSQL itself would take CET, UTC+3 and even
-- Europe/Berlin2 (for an offset of two hours). The view it asks is slow: once a job and zone.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_zone(timezone text)
returns void
language plpgsql
stable
as $$
begin
    if _check_zone.timezone = 'UTC' then
        return;
    end if;
    if strpos(_check_zone.timezone, '/') > 0 and left(_check_zone.timezone, 6) not in ('posix/', 'right/')
            and exists (select from pg_timezone_names z where z.name = _check_zone.timezone) then
        return;
    end if;
    raise exception using
        errcode = '22023',
        message = 'timezone ' || coalesce(pgonce._quoted(_check_zone.timezone), 'null')
            || ' is not a full name of pg_timezone_names',
        hint = 'Write a name with a slash as it stands there, such as Europe/Berlin, or UTC.';
end
$$;

comment on function pgonce._check_zone(text) is
    'Raises 22023 unless timezone is UTC or a full name of pg_timezone_names.';

-- What a clock on the wall of the zone shows at an instant; both as seconds since 1800-01-05 (a Sunday, so that day
-- numbers tell the weekday, and early enough that no number is negative). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._wall(
    timezone text,
    instant  bigint
)
returns bigint
language sql
immutable
as $$
    select date_part('epoch', to_timestamp(_wall.instant - 5364316800) at time zone _wall.timezone)::bigint + 5364316800
$$;

comment on function pgonce._wall(text, bigint) is
    'What a clock on the wall of the zone shows at an instant, in seconds since 1800-01-05.';

-- The instant at which the zone's offset changes, given that it does so once between two instants.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._transition(
    timezone text,
    early    bigint,
    late     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_early  bigint := _transition.early;
    v_late   bigint := _transition.late;
    v_middle bigint;
    v_offset constant bigint := pgonce._wall(_transition.timezone, v_late) - v_late;
begin
    while v_late - v_early > 1 loop
        v_middle := (v_early + v_late) / 2;
        if pgonce._wall(_transition.timezone, v_middle) - v_middle = v_offset then
            v_late := v_middle;
        else
            v_early := v_middle;
        end if;
    end loop;
    return v_late;
end
$$;

comment on function pgonce._transition(text, bigint, bigint) is
    'The instant between two at which the zone''s offset changes.';

-- The last day, not after the given one, that the schedule names; both as days since 1800-01-05.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: XX000 after 41 years without such a day: _compile refuses schedules that have none.
create function pgonce._day_before(
    compiled bigint[],
    day      integer
)
returns integer
language plpgsql
immutable
as $$
declare
    v_date   constant date := date '1800-01-05' + _day_before.day;
    v_year   integer := date_part('year', v_date)::integer;
    v_month  integer := date_part('month', v_date)::integer;
    v_months bigint := _day_before.compiled[4] & ((2::bigint << v_month) - 1);
    v_bits   bigint;
    v_first  integer;   -- first day of the month
    v_length integer;
begin
    for v_turn in 1 .. 41 * 12 loop
        if v_months = 0 then
            v_year := v_year - 1;
            v_months := _day_before.compiled[4];
        end if;
        v_month := pgonce._highest(v_months);
        v_months := v_months - (1::bigint << v_month);
        v_first := make_date(v_year, v_month, 1) - date '1800-01-05';
        v_length := make_date(v_year + v_month / 12, mod(v_month, 12) + 1, 1) - date '1800-01-05' - v_first;
        v_bits := _day_before.compiled[7 + 7 * (v_length - 28) + mod(v_first, 7)]
            & ((2::bigint << least(_day_before.day - v_first + 1, 31)) - 1);
        if v_bits > 0 then
            return v_first - 1 + pgonce._highest(v_bits);
        end if;
    end loop;
    raise exception using errcode = 'XX000', message = 'the schedule names no day within 41 years';
end
$$;

comment on function pgonce._day_before(bigint[], integer) is
    'The last day of a compiled schedule, not after the given one.';

-- The first day, not before the given one, that the schedule names; both as days since 1800-01-05.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: XX000 after 41 years without such a day: _compile refuses schedules that have none.
create function pgonce._day_after(
    compiled bigint[],
    day      integer
)
returns integer
language plpgsql
immutable
as $$
declare
    v_date   constant date := date '1800-01-05' + _day_after.day;
    v_year   integer := date_part('year', v_date)::integer;
    v_month  integer := date_part('month', v_date)::integer;
    v_months bigint := _day_after.compiled[4] & (-1::bigint << v_month);
    v_bits   bigint;
    v_first  integer;   -- first day of the month
    v_length integer;
begin
    for v_turn in 1 .. 41 * 12 loop
        if v_months = 0 then
            v_year := v_year + 1;
            v_months := _day_after.compiled[4];
        end if;
        v_month := pgonce._lowest(v_months);
        v_months := v_months - (1::bigint << v_month);
        v_first := make_date(v_year, v_month, 1) - date '1800-01-05';
        v_length := make_date(v_year + v_month / 12, mod(v_month, 12) + 1, 1) - date '1800-01-05' - v_first;
        v_bits := _day_after.compiled[7 + 7 * (v_length - 28) + mod(v_first, 7)]
            & (-1::bigint << greatest(_day_after.day - v_first + 1, 0));
        if v_bits > 0 then
            return v_first - 1 + pgonce._lowest(v_bits);
        end if;
    end loop;
    raise exception using errcode = 'XX000', message = 'the schedule names no day within 41 years';
end
$$;

comment on function pgonce._day_after(bigint[], integer) is
    'The first day of a compiled schedule, not before the given one.';

-- The last local time, not after the given one, whose fields match; both as seconds since 1800-01-05 on the wall.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._before(
    compiled bigint[],
    wall     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_day   integer := (_before.wall / 86400)::integer;
    v_hour  integer := (mod(_before.wall, 86400) / 3600)::integer;
    v_found integer := case when _before.compiled[1] & 4 > 0 then v_day
                            else pgonce._day_before(_before.compiled, v_day) end;
    v_bits  bigint;
begin
    if v_found = v_day then
        v_bits := _before.compiled[2] & ((2::bigint << (mod(_before.wall, 3600) / 60)::integer) - 1);
        if v_bits > 0 and _before.compiled[3] & (1::bigint << v_hour) > 0 then
            return v_day * 86400::bigint + v_hour * 3600 + pgonce._highest(v_bits) * 60;
        end if;
        v_bits := _before.compiled[3] & ((1::bigint << v_hour) - 1);
        if v_bits > 0 then
            return v_day * 86400::bigint + pgonce._highest(v_bits) * 3600 + mod(_before.compiled[6], 3600);
        end if;
        v_found := case when _before.compiled[1] & 4 > 0 then v_day - 1
                        else pgonce._day_before(_before.compiled, v_day - 1) end;
    end if;
    return v_found * 86400::bigint + _before.compiled[6];
end
$$;

comment on function pgonce._before(bigint[], bigint) is
    'The last local time of a compiled schedule, not after the given one.';

-- The first local time, after the given one, whose fields match; both as seconds since 1800-01-05 on the wall.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._after(
    compiled bigint[],
    wall     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_wall  bigint := _after.wall / 60 * 60 + 60;   -- the next full minute
    v_day   integer := (v_wall / 86400)::integer;
    v_hour  integer := (mod(v_wall, 86400) / 3600)::integer;
    v_found integer := case when _after.compiled[1] & 4 > 0 then v_day
                            else pgonce._day_after(_after.compiled, v_day) end;
    v_bits  bigint;
begin
    if v_found = v_day then
        v_bits := _after.compiled[2] & (-1::bigint << (mod(v_wall, 3600) / 60)::integer);
        if v_bits > 0 and _after.compiled[3] & (1::bigint << v_hour) > 0 then
            return v_day * 86400::bigint + v_hour * 3600 + pgonce._lowest(v_bits) * 60;
        end if;
        v_bits := _after.compiled[3] & (-2::bigint << v_hour);
        if v_bits > 0 then
            return v_day * 86400::bigint + pgonce._lowest(v_bits) * 3600 + mod(_after.compiled[5], 3600);
        end if;
        v_found := case when _after.compiled[1] & 4 > 0 then v_day + 1
                        else pgonce._day_after(_after.compiled, v_day + 1) end;
    end if;
    return v_found * 86400::bigint + _after.compiled[5];
end
$$;

comment on function pgonce._after(bigint[], bigint) is
    'The first local time of a compiled schedule, after the given one.';

-- The last fire time, not after an instant; both as seconds since 1800-01-05.
-- Zones jump by at most 24 hours and never twice within 72. So 50 hours before an instant there is one transition or
-- none, and if there is none, the later 26 of them show every local time for the first and only time.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fire_before(
    compiled bigint[],
    timezone text,
    instant  bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_repeat  constant boolean := _fire_before.compiled[1] & 1 > 0;
    v_move    constant boolean := _fire_before.compiled[1] & 2 > 0;
    v_at      bigint := _fire_before.instant;
    v_offset  bigint;   -- at v_at
    v_earlier bigint;   -- 50 hours earlier
    v_jump    bigint;   -- the transition between them
    v_found   bigint;   -- local time that matches
begin
    loop
        v_offset := pgonce._wall(_fire_before.timezone, v_at) - v_at;
        v_earlier := pgonce._wall(_fire_before.timezone, v_at - 180000) - v_at + 180000;
        v_found := pgonce._before(_fire_before.compiled, v_at + v_offset);
        if v_earlier = v_offset then
            if v_found - v_offset >= v_at - 93600 then
                return v_found - v_offset;
            end if;
            v_at := v_found - v_offset + 93600;   -- far back: look at the offsets there
        else
            v_jump := pgonce._transition(_fire_before.timezone, v_at - 180000, v_at);
            if v_found >= v_jump + (case when v_repeat then v_offset else greatest(v_offset, v_earlier) end) then
                return v_found - v_offset;
            end if;
            if v_move and v_found >= v_jump + v_earlier then
                return v_jump;                    -- the clock jumped over it
            end if;
            v_at := v_jump - 1;
        end if;
    end loop;
end
$$;

comment on function pgonce._fire_before(bigint[], text, bigint) is
    'The last fire time of a compiled schedule, not after an instant.';

-- The first fire time after an instant; both as seconds since 1800-01-05. See _fire_before for the hours.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fire_after(
    compiled bigint[],
    timezone text,
    instant  bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_repeat  constant boolean := _fire_after.compiled[1] & 1 > 0;
    v_move    constant boolean := _fire_after.compiled[1] & 2 > 0;
    v_at      bigint := _fire_after.instant;
    v_offset  bigint := pgonce._wall(_fire_after.timezone, v_at) - v_at;
    v_wall    bigint := v_at + v_offset;   -- search after this local time
    v_other   bigint;                      -- offset earlier or later
    v_jump    bigint;                      -- transition between
    v_found   bigint;                      -- local time that matches
begin
    if not v_repeat then
        v_other := pgonce._wall(_fire_after.timezone, v_at - 86400) - v_at + 86400;
        if v_other > v_offset then             -- local times of before the transition may come again: pass over them
            v_jump := pgonce._transition(_fire_after.timezone, v_at - 86400, v_at);
            v_wall := greatest(v_wall, v_jump + v_other - 1);
        end if;
    end if;
    loop
        v_found := pgonce._after(_fire_after.compiled, v_wall);
        v_other := pgonce._wall(_fire_after.timezone, v_at + 180000) - v_at - 180000;
        if v_other = v_offset then
            if v_found - v_offset <= v_at + 180000 then
                return v_found - v_offset;
            end if;
            v_at := v_found - v_offset - 180000;   -- far ahead: look at the offsets there
            v_offset := pgonce._wall(_fire_after.timezone, v_at) - v_at;
            v_wall := v_at + v_offset;
        else
            v_jump := pgonce._transition(_fire_after.timezone, v_at, v_at + 180000);
            if v_found < v_jump + v_offset then
                return v_found - v_offset;
            end if;
            if v_move and v_found < v_jump + v_other then
                return v_jump;                     -- the clock jumps over it
            end if;
            v_at := v_jump;
            v_wall := v_jump - 1 + case when v_repeat then v_other else greatest(v_offset, v_other) end;
            v_offset := v_other;
        end if;
    end loop;
end
$$;

comment on function pgonce._fire_after(bigint[], text, bigint) is
    'The first fire time of a compiled schedule after an instant.';

-- The window of a compiled schedule that contains an instant: from the last fire time not after it to the next.
-- The fire times of a cron expression whose fields match the local times in L, and the hours in H, are:
--   the first instant that shows a local time in L;
--   the later ones too, if it repeats: H is all 24 hours, or the text of the minute begins with *;
--   the instant at which the clock jumps over a local time in L, if it moves: H is not all 24 hours.
-- So what names hours runs once a named time and day, and what covers all hours follows the clock.
-- From PostgreSQL 18 on, "at time zone" takes a name for an abbreviation of the session's TimeZone first: in a session
-- with TimeZone = 'UTC-5', UTC would be five hours off. Hence the setting, which has no such abbreviations.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._window(
    compiled         bigint[],
    timezone         text,
    at               timestamptz,
    out window_start timestamptz,
    out window_end   timestamptz
)
language plpgsql
immutable
set timezone = 'UTC'
as $$
declare
    -- whole seconds since 1800-01-05, as in all that this function calls
    v_at    constant bigint := date_part('epoch', date_trunc('second', _window.at at time zone 'UTC'))::bigint
                               + 5364316800;
    v_start bigint;
    v_end   bigint;
begin
    if _window.compiled[1] & 8 > 0 then   -- every: counted from 2000-01-03 00:00 UTC, a Monday
        v_start := v_at - mod(v_at - mod(6311174400, _window.compiled[2]), _window.compiled[2]);
        v_end := v_start + _window.compiled[2];
    else
        v_start := pgonce._fire_before(_window.compiled, _window.timezone, v_at);
        v_end := pgonce._fire_after(_window.compiled, _window.timezone, v_at);
    end if;
    window_start := to_timestamp(v_start - 5364316800);
    window_end := to_timestamp(v_end - 5364316800);
end
$$;

comment on function pgonce._window(bigint[], text, timestamptz) is
    'The window of a compiled schedule that contains an instant.';

-- The window of a schedule that contains an instant: from the last fire time not after it to the next one.
-- Locks: nothing. Writes: nothing. Clock: read when no instant is given.
-- Raises: 22023.
create function pgonce.window_at(
    schedule         text,
    timezone         text default null,
    at               timestamptz default null,
    out window_start timestamptz,
    out window_end   timestamptz
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_compiled constant bigint[] := pgonce._compile(window_at.schedule collate "C");
    v_timezone constant text collate "C" := coalesce(window_at.timezone, 'UTC');
    v_at       timestamptz := window_at.at;
    v_window   record;
begin
    perform pgonce._check_zone(v_timezone);
    if v_at is null then
        v_at := pgonce.clock();
    end if;
    perform pgonce._check_instant('at', v_at);
    v_window := pgonce._window(v_compiled, v_timezone, v_at);
    window_start := v_window.window_start;
    window_end := v_window.window_end;
end
$$;

comment on function pgonce.window_at(text, text, timestamptz) is
    'The window of a schedule that contains an instant (default: now); its end is the next fire time.';

-- The windows of a schedule that start in [since, until), oldest first.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce.windows(
    schedule text,
    timezone text default null,
    since    timestamptz default null,
    until    timestamptz default null
)
returns table (
    window_start timestamptz,
    window_end   timestamptz
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_compiled constant bigint[] := pgonce._compile(windows.schedule collate "C");
    v_timezone constant text collate "C" := coalesce(windows.timezone, 'UTC');
    v_window   record;
begin
    perform pgonce._check_zone(v_timezone);
    perform pgonce._check_instant('since', windows.since);
    perform pgonce._check_instant('until', windows.until);
    if windows.since > windows.until then
        raise exception using
            errcode = '22023',
            message = 'until ' || windows.until || ' is before since ' || windows.since,
            hint = 'Give since and until in this order; the windows returned start in between.';
    end if;
    v_window := pgonce._window(v_compiled, v_timezone, windows.since);
    if v_window.window_start < windows.since then
        v_window := pgonce._window(v_compiled, v_timezone, v_window.window_end);
    end if;
    while v_window.window_start < windows.until loop
        window_start := v_window.window_start;
        window_end := v_window.window_end;
        return next;
        v_window := pgonce._window(v_compiled, v_timezone, v_window.window_end);
    end loop;
end
$$;

comment on function pgonce.windows(text, text, timestamptz, timestamptz) is
    'The windows of a schedule that start in [since, until), oldest first.';

-- The row of a job or scope of which nothing is known: the defaults, in one place.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fresh_job(job text)
returns pgonce.job
language plpgsql
immutable
as $$
declare
    v_job pgonce.job;
begin
    v_job.job := _fresh_job.job;
    v_job.defined := false;
    v_job.overlap := 'forbid';
    v_job.max_attempts := 3;
    v_job.early := interval '1 second';
    v_job.keep := make_interval(hours => 90 * 24);
    v_job.record_denials := false;
    v_job.backfill := true;
    v_job.running := '{}';
    v_job.last_token := 0;
    return v_job;
end
$$;

comment on function pgonce._fresh_job(text) is 'The row of a job never defined and never granted: the defaults.';

-- The settings of a job or scope: those defined, else the defaults.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._read_job(job text)
returns pgonce.job
language plpgsql
stable
as $$
declare
    v_job pgonce.job;
begin
    select j.* into v_job from pgonce.job j where j.job = _read_job.job;
    if not found then
        return pgonce._fresh_job(_read_job.job);
    end if;
    return v_job;
end
$$;

comment on function pgonce._read_job(text) is 'The settings of a job or scope: those defined, else the defaults.';

-- Locks the job's row, which every grant of one of its windows writes, and every running run that such a grant may
-- exclude. Null: something of it is locked elsewhere, so nothing is decided.
-- Locks: job, then its running runs unless windows may overlap, for update, without waiting; the caller's
--   lock_timeout bounds the wait for another inserter of a new job.
-- Writes: job, for a job never seen. Clock: not read.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._lock_job(job text)
returns pgonce.job
language plpgsql
volatile
as $$
declare
    v_job    pgonce.job;
    v_locked bigint[];
begin
    select j.* into v_job from pgonce.job j where j.job = _lock_job.job for update skip locked;
    if not found then
        if exists (select from pgonce.job j where j.job = _lock_job.job) then
            return null;
        end if;
        v_job := pgonce._fresh_job(_lock_job.job);
        insert into pgonce.job
        values (v_job.*)
        on conflict on constraint job_pkey do nothing;
        if not found then
            return null;
        end if;
    end if;
    if v_job.overlap = 'allow' or v_job.running = '{}' then
        return v_job;
    end if;
    v_locked := array(
        select r.token
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running'
        for update skip locked);
    if exists (
        select
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running' and r.token <> all (v_locked)
    ) then
        return null;
    end if;
    return v_job;
end
$$;

comment on function pgonce._lock_job(text) is
    'The job''s row, locked together with its running runs; null when something of that is locked elsewhere.';

-- The schedule, zone and compiled form that hold for a claim: the stored ones where they are left out or the same
-- text; else those given, for a job that was never defined. Parses only what is not stored.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._resolve_schedule(
    job      pgonce.job,
    schedule text,
    timezone text,
    unseen   boolean    -- the zone given was not checked yet
)
returns pgonce.job
language plpgsql
stable
as $$
declare
    v_spec pgonce.job := _resolve_schedule.job;
begin
    v_spec.schedule := coalesce(_resolve_schedule.schedule, v_spec.schedule);
    v_spec.timezone := coalesce(
        _resolve_schedule.timezone,
        case when _resolve_schedule.schedule is null or v_spec.defined then v_spec.timezone end,
        'UTC');
    if v_spec.schedule = _resolve_schedule.job.schedule and v_spec.timezone = _resolve_schedule.job.timezone then
        return v_spec;
    end if;
    if v_spec.schedule is null then
        raise exception using
            errcode = '22023',
            message = 'job ' || pgonce._quoted(v_spec.job) || ' has no schedule, and none is given',
            hint = 'Give schedule => ''0 3 * * *'' (and timezone), or define the job once with pgonce.define_job.';
    end if;
    if v_spec.defined and _resolve_schedule.job.schedule is not null then
        raise exception using
            errcode = '22023',
            message = case when v_spec.schedule <> _resolve_schedule.job.schedule
                then 'schedule ' || pgonce._quoted(v_spec.schedule) || ' is not the one defined for job '
                    || pgonce._quoted(v_spec.job) || ': ' || pgonce._quoted(_resolve_schedule.job.schedule)
                else 'timezone ' || pgonce._quoted(v_spec.timezone) || ' is not the one defined for job '
                    || pgonce._quoted(v_spec.job) || ': ' || pgonce._quoted(_resolve_schedule.job.timezone) end,
            hint = 'Leave schedule and timezone out, or change them with pgonce.define_job.';
    end if;
    v_spec.compiled := pgonce._compile(v_spec.schedule);
    if _resolve_schedule.unseen and v_spec.timezone is distinct from _resolve_schedule.job.timezone then
        -- slow: not for the stored zone, and once a claim
        perform pgonce._check_zone(v_spec.timezone);
    end if;
    return v_spec;
end
$$;

comment on function pgonce._resolve_schedule(pgonce.job, text, text, boolean) is
    'Schedule, zone and compiled form that hold for a claim.';

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

-- Notes a denial. Where the table is locked against writing, the note is lost, and nobody waits for it.
-- Locks: nothing; waits at most 50 ms for the table. Writes: denial. Clock: read.
-- Raises: nothing.
create function pgonce._note_denial(
    name   text,
    key    text,
    asker  text,
    reason text
)
returns void
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
begin
    insert into pgonce.denial (at, name, key, owner, reason)
    values (pgonce.clock(), _note_denial.name, _note_denial.key, pgonce._owner(_note_denial.asker), _note_denial.reason);
exception when lock_not_available or deadlock_detected then
    null;
end
$$;

comment on function pgonce._note_denial(text, text, text, text) is 'Notes a denial, for jobs and scopes with record_denials.';

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

-- Inserts the first record of an operation. True: inserted; false: it is there already; null: somebody else's
-- transaction is at it and did not end within the timeout.
-- Locks: the new row; waits at most 50 ms for another inserter, or for the table. Writes: run. Clock: not read.
-- Raises: 40001 above READ COMMITTED, when a record was committed that the snapshot cannot see.
create function pgonce._insert_run(run pgonce.run)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
begin
    insert into pgonce.run
    values (_insert_run.run.*)
    on conflict on constraint run_pkey do nothing;
    return found;
exception when lock_not_available or deadlock_detected then
    return null;
end
$$;

comment on function pgonce._insert_run(pgonce.run) is
    'Inserts a first record: true; there already: false; in flight elsewhere: null, after 50 ms.';

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

-- The same question asked again: brings back the grant that answered it, renewed. Null: that grant has ended (or is
-- another role's, or cannot be kept alive any longer), and the question counts as if it had no nonce.
-- Locks: the run, for no key update, without waiting; waits at most 50 ms for the table. Writes: run.expires_at. Clock: read under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._replay(
    run   pgonce.run,
    ttl   interval,
    asker text
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_run   pgonce.run;
    v_until timestamptz;
begin
    if _replay.run.state <> 'running' or _replay.run.role <> pgonce._caller()
            or greatest(_replay.run.expires_at, coalesce(_replay.run.max_until, 'infinity')) <= pgonce.clock() then
        return null;    -- known by reading, so that the denial that follows locks nothing
    end if;
    select r.* into v_run
    from pgonce.run r
    where r.token = _replay.run.token and r.state = 'running'
    for no key update skip locked;
    if not found and exists (select from pgonce.run r where r.token = _replay.run.token) then
        return pgonce._deny(_replay.run, 'busy', _replay.asker);
    elsif not found then
        return null;    -- taken over meanwhile
    end if;
    v_until := least(pgonce.clock() + coalesce(_replay.ttl, v_run.ttl), v_run.max_until);
    if greatest(v_until, v_run.expires_at) <= pgonce.clock() then
        return null;
    end if;
    update pgonce.run r
    set expires_at = greatest(r.expires_at, v_until)
    where r.token = v_run.token
    returning r.* into v_run;
    return pgonce._granted(v_run);
exception when lock_not_available or deadlock_detected then
    return pgonce._deny(_replay.run, 'busy', _replay.asker);
end
$$;

comment on function pgonce._replay(pgonce.run, interval, text) is
    'The grant that answered the same question before, renewed; null when it has ended.';

-- Stores the settings of a job (or, without a schedule, of a scope of operations). Everything is checked now. Calling it
-- again with the same arguments changes nothing; null means the default, but a null schedule keeps the stored one.
-- Locks: none if it changes nothing; else the job's row, for update; waits at most 10 s for an open claim (and as long
--   for another first definition).
-- Writes: job, if it changes anything. Clock: read, again under the lock.
-- Raises: 22023, 55P03 (a claim of the job stays open); 40001 above READ COMMITTED.
create function pgonce.define_job(
    job            text,
    schedule       text default null,
    timezone       text default null,
    ttl            interval default null,
    overlap        text default null,
    max_attempts   integer default null,
    start_deadline interval default null,
    early          interval default null,
    max_hold       interval default null,
    keep           interval default null,
    record_denials boolean default null
)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '10s'
as $$
declare
    v_old    pgonce.job;
    v_new    pgonce.job := pgonce._fresh_job(define_job.job);
    v_given  pgonce.job;    -- v_new, as far as the arguments alone tell
    v_window record;
begin
    perform pgonce._check_name('job', v_new.job, 200);
    v_new.defined := true;
    v_new.ttl := pgonce._duration('ttl', define_job.ttl, false);
    v_new.overlap := coalesce(define_job.overlap, v_new.overlap);
    v_new.max_attempts := coalesce(define_job.max_attempts, v_new.max_attempts);
    v_new.start_deadline := nullif(pgonce._duration('start_deadline', define_job.start_deadline, true), interval '0');
    v_new.early := coalesce(pgonce._duration('early', define_job.early, true), v_new.early);
    v_new.max_hold := nullif(pgonce._duration('max_hold', define_job.max_hold, true), interval '0');
    v_new.keep := coalesce(pgonce._duration('keep', define_job.keep, true), v_new.keep);
    v_new.record_denials := coalesce(define_job.record_denials, v_new.record_denials);
    perform pgonce._check_max_hold(v_new.ttl, v_new.max_hold);
    if v_new.overlap not in ('forbid', 'allow', 'replace') then
        raise exception using
            errcode = '22023',
            message = 'overlap is not known: ' || pgonce._quoted(v_new.overlap),
            hint = 'Give overlap as forbid, allow or replace.';
    end if;
    if v_new.max_attempts < 1 then
        raise exception using
            errcode = '22023',
            message = 'max_attempts is out of range: ' || v_new.max_attempts,
            hint = 'Give max_attempts as a number from 1.';
    end if;
    if define_job.early > v_new.start_deadline then
        raise exception using
            errcode = '22023',
            message = 'start_deadline ' || v_new.start_deadline || ' is shorter than early ' || define_job.early,
            hint = 'Give a start_deadline of at least early: a window claimed early starts on time.';
    end if;

    if define_job.schedule is not null then
        v_new.compiled := pgonce._compile(define_job.schedule collate "C");
    end if;
    v_given := v_new;

    for v_pass in 1..2 loop     -- by reading; then, if it changes anything, again under the lock
        if v_pass = 2 then
            insert into pgonce.job
            values ((pgonce._fresh_job(v_new.job)).*)
            on conflict on constraint job_pkey do nothing;
            perform from pgonce.job j where j.job = v_new.job for update;
        end if;
        v_old := pgonce._read_job(v_new.job);
        v_new := v_given;
        v_new.schedule := coalesce(define_job.schedule, v_old.schedule);
        v_new.timezone := coalesce(
            define_job.timezone, case when define_job.schedule is null then v_old.timezone else 'UTC' end);
        v_new.compiled := coalesce(v_new.compiled, v_old.compiled);
        if v_new.timezone is not null and v_new.schedule is null then
            raise exception using
                errcode = '22023',
                message = 'timezone ' || pgonce._quoted(v_new.timezone) || ' is given, but no schedule',
                hint = 'Give the schedule, too: there is none stored for job ' || pgonce._quoted(v_new.job) || '.';
        end if;
        if v_pass = 1 and v_new.timezone is distinct from v_old.timezone then
            perform pgonce._check_zone(v_new.timezone);     -- slow
        end if;
        v_new.running := v_old.running;
        if v_old.overlap = 'allow' and v_new.overlap <> 'allow' then
            v_new.running := array(
                select r.token
                from pgonce.run r
                where r.kind = 'window' and r.name = v_new.job and r.state = 'running');
        end if;
        v_new.beginning := v_old.beginning;
        v_new.backfill := v_old.backfill;
        v_new.newest_start := v_old.newest_start;
        v_new.newest_end := v_old.newest_end;
        v_new.last_token := v_old.last_token;
        if v_new.schedule is distinct from v_old.schedule or v_new.timezone is distinct from v_old.timezone then
            v_window := pgonce._window(v_new.compiled, v_new.timezone, pgonce.clock());
            v_new.beginning := greatest(v_old.beginning, v_window.window_start);
            v_new.backfill := false;
            v_new.newest_start := null;
            v_new.newest_end := null;
        end if;
        if v_new is not distinct from v_old then
            return;
        end if;
    end loop;
    update pgonce.job j
    set defined = v_new.defined,
        schedule = v_new.schedule,
        timezone = v_new.timezone,
        compiled = v_new.compiled,
        ttl = v_new.ttl,
        overlap = v_new.overlap,
        max_attempts = v_new.max_attempts,
        start_deadline = v_new.start_deadline,
        early = v_new.early,
        max_hold = v_new.max_hold,
        keep = v_new.keep,
        record_denials = v_new.record_denials,
        beginning = v_new.beginning,
        backfill = v_new.backfill,
        newest_start = v_new.newest_start,
        newest_end = v_new.newest_end,
        running = v_new.running
    where j.job = v_new.job;
exception when lock_not_available or deadlock_detected then
    raise exception using
        errcode = '55P03',
        message = 'job ' || pgonce._quoted(v_new.job) || ' is being claimed in a transaction that stays open',
        hint = 'Define it again once that transaction has ended; pg_stat_activity shows it.';
end
$$;

comment on function pgonce.define_job(
    text, text, text, interval, text, integer, interval, interval, interval, interval, boolean) is
    'Stores the settings of a job or scope, all checked now; null means the default, a null schedule keeps the stored one.';

-- Writes the grant of a window. What it excludes is burnt first: whoever held that holds nothing any more.
-- Locks: nothing more; the caller has locked job, running runs and the window's own run.
-- Writes: run (its own, and those burnt or replaced), job. Clock: read; everything is locked.
-- Raises: nothing.
create function pgonce._grant_window(
    job       pgonce.job,           -- the job's row as it is
    spec      pgonce.job,           -- the same with the schedule, timezone and compiled form of this claim
    run       pgonce.run,           -- the window's record; one without a token is new
    beginning timestamptz,          -- the job's beginning from now on; null: this window's start
    explicit  boolean,              -- asked for by window_start
    ttl       interval,
    owner     text,
    nonce     uuid
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_job     pgonce.job := _grant_window.spec;
    v_run     pgonce.run := _grant_window.run;
    v_now     timestamptz := pgonce.clock();
    v_changed boolean := v_job.schedule is distinct from _grant_window.job.schedule
                      or v_job.timezone is distinct from _grant_window.job.timezone;
begin
    if v_job.overlap = 'replace' then
        update pgonce.run r
        set state = 'replaced',
            token = pgonce._next_token(v_job.last_token),
            burnt = true,
            nonce = null,
            finished_at = v_now,
            keep_until = v_now + r.keep
        where r.token = any (v_job.running) and r.state = 'running' and r.window_start < v_run.window_start;
    end if;
    if v_job.overlap <> 'allow' then
        update pgonce.run r
        set token = pgonce._next_token(v_job.last_token),
            burnt = true,
            nonce = null
        where r.token = any (v_job.running) and r.state = 'running' and r.key <> v_run.key;
    end if;

    v_run := pgonce._attempt(
        v_run, v_job, pgonce._next_token(v_job.last_token),
        coalesce(
            _grant_window.ttl,
            v_job.ttl,
            -- to the window's end, at least 5 minutes, at most 24 hours
            make_interval(secs => least(greatest(extract(epoch from v_run.window_end - v_now), 300), 86400))),
        _grant_window.owner, _grant_window.nonce, v_now);
    if _grant_window.run.token is null then
        insert into pgonce.run values (v_run.*);
    else
        perform pgonce._write_attempt(v_run);
    end if;

    if not _grant_window.explicit then
        v_job.newest_start := v_run.window_start;
        v_job.newest_end := v_run.window_end;
    elsif v_changed then
        v_job.newest_start := null;
        v_job.newest_end := null;
    end if;
    -- Where windows overlap, nobody needs this list: define_job makes it anew when that ends.
    update pgonce.job j
    set schedule = v_job.schedule,
        timezone = v_job.timezone,
        compiled = v_job.compiled,
        beginning = coalesce(_grant_window.beginning, v_run.window_start),
        backfill = j.backfill and (j.beginning is null or not v_changed),
        newest_start = v_job.newest_start,
        newest_end = v_job.newest_end,
        running = array(
            select r.token
            from pgonce.run r
            where r.token = any (j.running) and r.state = 'running' and r.key <> v_run.key
              and r.expires_at > v_now) || v_run.token,
        last_token = v_run.token
    where j.job = v_job.job;
    return pgonce._granted(v_run);
end
$$;

comment on function pgonce._grant_window(
    pgonce.job, pgonce.job, pgonce.run, timestamptz, boolean, interval, text, uuid) is
    'Writes the grant of a window, and burns or replaces what it excludes.';

-- One look at a window. By reading: a denial, or an answer without a reason (it may be granted). Under the locks: a grant
-- or a denial; null when the job itself is locked elsewhere.
-- Locks: only if told to: the job's row, then its running runs (unless overlap is allow) and the window's own run, for
--   update, without waiting: what is locked elsewhere is answered busy.
-- Writes: for a grant, see _grant_window. Clock: read, after the locks.
-- Raises: 22023; 40001 above READ COMMITTED.
create function pgonce._try_window(
    job          text,
    schedule     text,
    timezone     text,
    ttl          interval,
    owner        text,
    window_start timestamptz,
    nonce        uuid,
    locked       boolean
)
returns pgonce.claim
language plpgsql
volatile
as $$
declare
    v_job       pgonce.job;
    v_spec      pgonce.job;     -- what schedule, timezone and compiled hold for this claim
    v_changed   boolean;        -- ... and are not the stored ones
    v_run       pgonce.run;     -- the window's record; where there is none: its name, key and window
    v_new       boolean;        -- ... there is none
    v_other     pgonce.run;
    v_explicit  boolean := _try_window.window_start is not null;
    v_window    record;
    v_start     timestamptz;
    v_end       timestamptz;
    v_key       text;
    v_early     interval;
    v_beginning timestamptz;
    v_now       timestamptz;
    v_reason    text;
    v_claim     pgonce.claim;
begin
    -- The job: what is known of it, and whether this very question was answered before.
    if _try_window.locked then
        v_job := pgonce._lock_job(_try_window.job);
        if v_job.job is null then
            return null;
        end if;
    else
        select j.* into v_job from pgonce.job j where j.job = _try_window.job;
        if not found then
            perform pgonce._check_name('job', _try_window.job, 200);
            v_job := pgonce._fresh_job(_try_window.job);
        end if;
    end if;
    if _try_window.nonce is not null then
        select r.* into v_other
        from pgonce.run r
        where r.kind = 'window' and r.name = _try_window.job and r.nonce = _try_window.nonce and r.state = 'running'
        order by r.token desc       -- where windows overlap, an expired one of the same question may be there, too
        limit 1;
        if found then
            v_claim := pgonce._replay(v_other, _try_window.ttl, _try_window.owner);
            if v_claim.reason is not null then
                return v_claim;
            end if;
        end if;
    end if;

    -- The window.
    v_spec := pgonce._resolve_schedule(v_job, _try_window.schedule, _try_window.timezone, not _try_window.locked);
    v_changed := v_spec.schedule is distinct from v_job.schedule
        or v_spec.timezone is distinct from v_job.timezone;
    v_now := pgonce.clock();
    v_start := v_job.newest_start;
    v_end := v_job.newest_end;
    if v_explicit or v_changed or (v_now >= v_start and v_now < v_end) is not true then
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, coalesce(_try_window.window_start, v_now));
        v_start := v_window.window_start;
        v_end := v_window.window_end;
    end if;
    if not v_explicit and v_end - v_now <= v_job.early then
        -- A host whose clock runs ahead means the coming window, whatever became of the present one.
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, v_end);
        if v_end - v_now <= (v_window.window_end - v_window.window_start) / 4 then
            v_start := v_window.window_start;
            v_end := v_window.window_end;
        end if;
    end if;
    if v_explicit and v_start <> _try_window.window_start then
        v_start := _try_window.window_start;
        v_end := null;      -- not a start of the schedule: its record must tell
    end if;
    v_beginning := v_job.beginning;
    if v_beginning is not null and v_changed then
        v_window := pgonce._window(v_spec.compiled, v_spec.timezone, v_now);
        v_beginning := greatest(v_beginning, v_window.window_start);
    elsif v_explicit and v_job.backfill then
        v_beginning := least(v_beginning, v_start);
    end if;

    -- Its record, and the first reason that speaks against a grant.
    -- No zone by name: PostgreSQL 18 takes an abbreviation of the session's own zone first, even for UTC.
    v_key := replace(to_char(v_start at time zone interval '0', 'YYYY-MM-DD"T"HH24.MI.SS"Z"'), '.', ':');
    select r.* into v_run
    from pgonce.run r
    where r.kind = 'window' and r.name = _try_window.job and r.key = v_key;
    v_new := not found;
    if v_end is null and v_run.window_start is distinct from v_start then
        raise exception using
            errcode = '22023',
            message = 'window_start ' || _try_window.window_start || ' is not a fire time of '
                || pgonce._quoted(v_spec.schedule) || ' in ' || v_spec.timezone,
            hint = 'Give a fire time exactly; pgonce.windows(schedule, timezone, since, until) lists them.';
    end if;
    if v_new then
        v_run.kind := 'window';
        v_run.name := _try_window.job;
        v_run.key := v_key;
        v_run.window_start := v_start;
        v_run.window_end := v_end;
        v_run.record_denials := v_job.record_denials;
    elsif _try_window.locked and v_run.state <> 'done' then
        select r.* into v_other from pgonce.run r where r.token = v_run.token for update skip locked;
        if not found then
            return pgonce._deny(v_run, 'busy', _try_window.owner);
        end if;
        v_run := v_other;
    end if;
    v_end := coalesce(v_end, v_run.window_end);
    v_run.window_end := v_end;      -- of the schedule as it is now
    if v_explicit then
        v_early := make_interval(secs => extract(epoch from least(v_job.early, (v_end - v_start) / 4)));
    end if;
    v_now := pgonce.clock();
    v_reason := coalesce(pgonce._run_reason(v_run, v_job.max_attempts, v_now), case
        when v_start < v_beginning then 'skipped'
        when v_explicit and v_now < v_start - v_early then 'ahead'
        when v_new and not v_explicit and v_now > v_start + v_job.start_deadline then 'late'
    end);
    if v_reason is null and v_job.overlap <> 'allow' then
        select r.* into v_other
        from pgonce.run r
        where r.token = any (v_job.running) and r.state = 'running' and r.expires_at > v_now
          and r.key <> v_key and (v_job.overlap = 'forbid' or r.window_start > v_start)
        order by r.expires_at desc
        limit 1;
        if found then
            v_reason := 'overlap';
        end if;
    end if;
    if v_run.nonce = _try_window.nonce then     -- committed since the question was looked for
        v_claim := pgonce._replay(v_run, _try_window.ttl, _try_window.owner);
        if v_claim.reason is not null then
            return v_claim;
        end if;
    end if;
    if v_reason is not null or not _try_window.locked then
        return pgonce._deny(
            v_run, v_reason, _try_window.owner,
            case v_reason when 'held' then v_run when 'overlap' then v_other end,
            case v_reason
                when 'held' then v_run.expires_at
                when 'overlap' then v_other.expires_at
                when 'backoff' then v_run.retry_at
                when 'ahead' then v_start - v_early
            end);
    end if;
    return pgonce._grant_window(
        v_job, v_spec, v_run, v_beginning, v_explicit, _try_window.ttl, _try_window.owner, _try_window.nonce);
end
$$;

comment on function pgonce._try_window(text, text, text, interval, text, timestamptz, uuid, boolean) is
    'One look at a window, by reading (no reason: it may be granted) or under the locks.';

-- The second look at a window, under the locks. A denial found there lets them go. Without a reason: something was locked
-- elsewhere (the job, or a table against writing), so nothing is decided.
-- Locks: see _try_window; waits at most 50 ms each time, for another inserter or for a table.
-- Writes: for a grant, see _grant_window. Clock: read under the locks.
-- Raises: 22023; 40001 above READ COMMITTED.
create function pgonce._take_window(
    job          text,
    schedule     text,
    timezone     text,
    ttl          interval,
    owner        text,
    window_start timestamptz,
    nonce        uuid
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_claim pgonce.claim;
begin
    v_claim := pgonce._try_window(
        _take_window.job, _take_window.schedule, _take_window.timezone, _take_window.ttl, _take_window.owner,
        _take_window.window_start, _take_window.nonce, true);
    if v_claim.claimed then
        return v_claim;
    end if;
    raise exception using errcode = 'ON000', message = 'denied under the locks';
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go what was locked
    return v_claim;
end
$$;

comment on function pgonce._take_window(text, text, text, interval, text, timestamptz, uuid) is
    'The second look at a window, under the locks; no reason: undecided.';

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

-- The second look at an operation, under the lock. A denial found there lets it go. Without a reason: the table was locked
-- against writing, so nothing is decided.
-- Locks: see _try_key; waits at most 50 ms each time, for another inserter or for a table.
-- Writes: for a grant, run. Clock: read under the lock.
-- Raises: 22023, ON002; 40001 above READ COMMITTED.
create function pgonce._take_key(
    scope       text,
    key         text,
    ttl         interval,
    owner       text,
    fingerprint text,
    nonce       uuid
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_claim pgonce.claim;
begin
    v_claim := pgonce._try_key(
        _take_key.scope, _take_key.key, _take_key.ttl, _take_key.owner, _take_key.fingerprint, _take_key.nonce, true);
    if v_claim.claimed then
        return v_claim;
    end if;
    raise exception using errcode = 'ON000', message = 'denied under the lock';
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go what was locked
    return v_claim;
end
$$;

comment on function pgonce._take_key(text, text, interval, text, text, uuid) is
    'The second look at an operation, under the lock; no reason: undecided.';

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

-- Inserts all slots of a lease never asked for. The first slot's row decides among those who come at once.
-- True: inserted; false: there already; null: somebody else's transaction is at it and did not end within the timeout.
-- Locks: the new rows; waits at most 50 ms for another inserter, or for the table. Writes: lease. Clock: not read.
-- Raises: 40001 above READ COMMITTED, when rows were committed that the snapshot cannot see.
create function pgonce._insert_lease(
    name  text,
    slots integer
)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
begin
    insert into pgonce.lease (name, slot, slots)
    values (_insert_lease.name, 1, _insert_lease.slots)
    on conflict on constraint lease_pkey do nothing;
    if not found then
        return false;
    end if;
    insert into pgonce.lease (name, slot, slots)
    select _insert_lease.name, n, _insert_lease.slots
    from generate_series(2, _insert_lease.slots) n;
    return true;
exception when lock_not_available or deadlock_detected then
    return null;
end
$$;

comment on function pgonce._insert_lease(text, integer) is
    'Inserts all slots of a new lease: true; there already: false; in flight elsewhere: null, after 50 ms.';

-- Gives a lease another number of slots, which needs every slot free. True: done; null: a slot is locked elsewhere.
-- Whoever held an expired slot holds nothing any more.
-- Locks: all rows of the lease, for update, without waiting; waits at most 50 ms for the table. Writes: lease. Clock: read before and under the locks.
-- Raises: 22023 (a slot is held); 40001 above READ COMMITTED.
create function pgonce._resize_lease(
    name  text,
    slots integer
)
returns boolean
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_rows  bigint;
    v_slots integer;
    v_token bigint;
    v_until timestamptz;
begin
    for v_pass in 1..2 loop     -- decides by reading; then again under the locks
        select count(*), min(l.slots), max(l.token), max(l.expires_at)
        into v_rows, v_slots, v_token, v_until
        from pgonce.lease l
        where l.name = _resize_lease.name;
        if v_slots = _resize_lease.slots and v_pass = 1 then
            return true;        -- somebody else has done so meanwhile
        elsif v_slots = _resize_lease.slots then
            raise exception using errcode = 'ON000', message = 'somebody else has just done so';
        end if;
        if v_until > pgonce.clock() then
            raise exception using
                errcode = '22023',
                message = 'slots ' || _resize_lease.slots || ' differs from the ' || v_slots || ' of lease '
                    || pgonce._quoted(_resize_lease.name) || ', which is held',
                hint = 'Ask with the same number of slots everywhere, or change it while no slot is held.';
        end if;
        if v_pass = 1 and v_rows <> (
            select count(*)
            from (select from pgonce.lease l where l.name = _resize_lease.name for update skip locked) locked
        ) then
            raise exception using errcode = 'ON000', message = 'a slot is locked elsewhere';
        end if;
    end loop;
    update pgonce.lease l
    set slots = _resize_lease.slots,
        token = case when l.held then pgonce._next_token(v_token) else l.token end,
        held = false,
        nonce = null
    where l.name = _resize_lease.name;
    insert into pgonce.lease (name, slot, slots)
    select _resize_lease.name, n, _resize_lease.slots
    from generate_series(v_rows + 1, _resize_lease.slots) n;
    return true;
exception when sqlstate 'ON000' or lock_not_available or deadlock_detected then     -- which lets go of the other slots
    return null;
end
$$;

comment on function pgonce._resize_lease(text, integer) is
    'Gives a lease another number of slots, all of which must be free; null when one is locked elsewhere.';

-- The same question asked again: brings back the lease that answered it, renewed. Null: that grant has ended (or is
-- another role's, or cannot be kept alive any longer), and the question counts as if it had no nonce.
-- Locks: the slot, for no key update, without waiting; waits at most 50 ms for the table. Writes: lease.expires_at. Clock: read under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._replay_lease(
    name  text,
    nonce uuid,
    ttl   interval
)
returns pgonce.claim
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_lease pgonce.lease;
    v_until timestamptz;
begin
    select l.* into v_lease
    from pgonce.lease l
    where l.name = _replay_lease.name and l.nonce = _replay_lease.nonce and l.held and l.role = pgonce._caller();
    if not found or greatest(v_lease.expires_at, coalesce(v_lease.max_until, 'infinity')) <= pgonce.clock() then
        return null;    -- known by reading, so that a denial that follows locks nothing
    end if;
    perform from pgonce.lease l where l.token = v_lease.token and l.held for no key update skip locked;
    if not found and exists (select from pgonce.lease l where l.token = v_lease.token and l.held) then
        return pgonce._lease_claim(v_lease, 'busy');
    elsif not found then
        return null;    -- taken over meanwhile
    end if;
    v_until := least(pgonce.clock() + _replay_lease.ttl, v_lease.max_until);
    if greatest(v_until, v_lease.expires_at) <= pgonce.clock() then
        return null;
    end if;
    update pgonce.lease l
    set expires_at = greatest(l.expires_at, v_until)
    where l.token = v_lease.token
    returning l.* into v_lease;
    return pgonce._lease_claim(v_lease, 'granted');
exception when lock_not_available or deadlock_detected then
    return pgonce._lease_claim(v_lease, 'busy');
end
$$;

comment on function pgonce._replay_lease(text, uuid, interval) is
    'The lease that answered the same question before, renewed; null when it has ended.';

-- Takes the first slot that is free and not locked elsewhere. Null: there is none at this moment, or the same question is
-- being answered with another slot (the unique index on name, role and nonce says so); then nothing stays locked.
-- Locks: the slot, for update, without waiting; waits at most 50 ms for the same question, or for the table.
-- Writes: lease. Clock: read before and under the lock.
-- Raises: 40001 above READ COMMITTED.
create function pgonce._take_slot(
    name     text,
    slots    integer,
    ttl      interval,
    max_hold interval,
    min_hold interval,
    owner    text,
    nonce    uuid
)
returns pgonce.lease
language plpgsql
volatile
set lock_timeout = '50ms'
as $$
declare
    v_now   timestamptz := pgonce.clock();
    v_lease pgonce.lease;
begin
    select l.* into v_lease
    from pgonce.lease l
    where l.name = _take_slot.name and l.slots = _take_slot.slots and l.slot <= _take_slot.slots
      and l.expires_at <= v_now
    order by l.nonce = _take_slot.nonce desc nulls last, l.slot
    limit 1
    for update skip locked;
    if not found then
        return null;
    end if;
    if _take_slot.slots > 1 and current_setting('transaction_isolation') <> 'read committed' then
        begin       -- 40001 if another slot was granted since the snapshot: its token would not be seen below
            perform from pgonce.lease l where l.name = _take_slot.name for key share skip locked;
            raise exception using errcode = 'ON000', message = 'no slot was granted since the snapshot';
        exception when sqlstate 'ON000' then
            null;   -- which lets go of the other slots
        end;
    end if;
    v_now := pgonce.clock();
    update pgonce.lease l
    set held = true,
        token = pgonce._next_token((select max(t.token) from pgonce.lease t where t.name = _take_slot.name)),
        owner = pgonce._owner(_take_slot.owner),
        role = pgonce._caller(),
        nonce = _take_slot.nonce,
        ttl = _take_slot.ttl,
        acquired_at = v_now,
        expires_at = v_now + greatest(_take_slot.ttl, _take_slot.min_hold),
        max_until = v_now + _take_slot.max_hold,
        min_until = v_now + _take_slot.min_hold
    where l.name = v_lease.name and l.slot = v_lease.slot
    returning l.* into v_lease;
    return v_lease;
exception when lock_not_available or deadlock_detected or unique_violation then
    return null;
end
$$;

comment on function pgonce._take_slot(text, integer, interval, interval, interval, text, uuid) is
    'Takes the first slot that is free; null: there is none at this moment.';

-- Takes a lease, or one of its equal slots (a semaphore).
-- Locks: none for a denial; for a grant the slot's row, for update, without waiting (a lease never asked for: its
--   insertion, 50 ms; another number of slots: all its rows): what is locked elsewhere is answered busy.
-- Writes: lease. A denial: nothing.
-- Clock: read before, and again under the lock.
-- Raises: 22023, 25006; 40001 above READ COMMITTED.
create function pgonce.acquire_lease(
    name     text,
    ttl      interval,
    owner    text default null,
    slots    integer default null,
    max_hold interval default null,
    min_hold interval default null,
    nonce    uuid default null
)
returns pgonce.claim
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_name     text collate "C" := acquire_lease.name;
    v_ttl      interval;
    v_max_hold interval;
    v_min_hold interval;
    v_slots    integer := coalesce(acquire_lease.slots, 1);
    v_lease    pgonce.lease;
    v_known    boolean;
    v_claim    pgonce.claim;
begin
    perform pgonce._require_writable();
    if acquire_lease.ttl is null then
        perform pgonce._refuse_null('ttl', 'Give the time after which somebody else may take over, such as ''5 minutes''.');
    end if;
    v_ttl := pgonce._duration('ttl', acquire_lease.ttl, false);
    v_max_hold := nullif(pgonce._duration('max_hold', acquire_lease.max_hold, true), interval '0');
    v_min_hold := nullif(pgonce._duration('min_hold', acquire_lease.min_hold, true), interval '0');
    perform pgonce._check_max_hold(v_ttl, v_max_hold);
    if v_min_hold > v_max_hold then
        raise exception using
            errcode = '22023',
            message = 'min_hold ' || v_min_hold || ' is above max_hold ' || v_max_hold,
            hint = 'Give a min_hold of at most max_hold.';
    end if;
    if v_slots not between 1 and 1000 then
        raise exception using
            errcode = '22023',
            message = 'slots is out of range: ' || v_slots,
            hint = 'Give slots as a number from 1 to 1000.';
    end if;
    if acquire_lease.owner is not null then
        perform pgonce._check_name('owner', acquire_lease.owner collate "C", 200);
    end if;

    for v_pass in 1..2 loop     -- once more when the slot seen was gone when it came to taking it
        select l.* into v_lease     -- the slot that is free first
        from pgonce.lease l
        where l.name = v_name and l.slots = v_slots and l.slot <= v_slots
        order by l.expires_at
        limit 1;
        v_known := found;
        if acquire_lease.nonce is not null then     -- read afterwards: what was granted in between is no "held"
            v_claim := pgonce._replay_lease(v_name, acquire_lease.nonce, v_ttl);
            if v_claim.reason is not null then
                return v_claim;
            end if;
        end if;
        if v_lease.expires_at > pgonce.clock() then
            return pgonce._lease_claim(v_lease, 'held');
        end if;

        if not v_known and exists (
            select from pgonce.lease l where l.name = v_name and l.slots <> v_slots
        ) then
            v_known := pgonce._resize_lease(v_name, v_slots);
        elsif not v_known then
            perform pgonce._check_name('name', v_name, 200);
            v_known := pgonce._insert_lease(v_name, v_slots);
        end if;
        exit when v_known is null;      -- in flight elsewhere

        v_lease := pgonce._take_slot(
            v_name, v_slots, v_ttl, v_max_hold, v_min_hold, acquire_lease.owner, acquire_lease.nonce);
        if v_lease.token is not null then
            return pgonce._lease_claim(v_lease, 'granted');
        end if;
    end loop;
    v_lease := null;
    v_lease.name := v_name;
    return pgonce._lease_claim(v_lease, 'busy');
end
$$;

comment on function pgonce.acquire_lease(text, interval, text, integer, interval, interval, uuid) is
    'Takes a lease, or one of its equal slots.';

-- The new expires_at of something that is held and locked: the whole ttl from now, and never less than it had.
-- Locks: nothing. Writes: nothing. Clock: read; the caller has locked the row.
-- Raises: 22023 (an explicit ttl above max_hold), ON003 (max_hold would be passed).
create function pgonce._renewed(
    ttl        interval,
    granted    interval,
    since      timestamptz,
    max_until  timestamptz,
    expires_at timestamptz
)
returns timestamptz
language plpgsql
volatile
as $$
declare
    v_until timestamptz;
begin
    perform pgonce._check_max_hold(_renewed.ttl, _renewed.max_until - _renewed.since);
    v_until := pgonce.clock() + coalesce(_renewed.ttl, _renewed.granted);
    if v_until > _renewed.max_until then
        raise exception using
            errcode = 'ON003',
            message = 'max_hold is reached: it cannot be renewed past ' || _renewed.max_until,
            detail = 'It is held until ' || _renewed.expires_at || '.',
            hint = 'Finish before that; or ask for a greater max_hold next time.';
    end if;
    return greatest(_renewed.expires_at, v_until);
end
$$;

comment on function pgonce._renewed(interval, interval, timestamptz, timestamptz, timestamptz) is
    'The new expires_at of something held; raises ON003 when max_hold would be passed.';

-- The run that the token was granted for, locked: for mark_done and mark_failed.
-- Locks: the run, for no key update; the caller's lock_timeout bounds the wait.
-- Writes: nothing. Clock: not read.
-- Raises: ON001, 22023 (the token is a lease's).
create function pgonce._hold_run(token bigint)
returns pgonce.run
language plpgsql
volatile
as $$
declare
    v_run pgonce.run;
begin
    select r.* into v_run from pgonce.run r where r.token = _hold_run.token for no key update;
    if found and not v_run.burnt and pgonce._may_use(v_run.role) then
        return v_run;
    end if;
    if exists (select from pgonce.lease l where l.token = _hold_run.token) then
        raise exception using
            errcode = '22023',
            message = 'token ' || _hold_run.token || ' is that of a lease, not of a run',
            hint = 'Free a lease with release_lease; only windows and operations are finished.';
    end if;
    perform pgonce._not_held(_hold_run.token);
end
$$;

comment on function pgonce._hold_run(bigint) is 'The run that the token was granted for, locked; raises ON001.';

-- Extends what the token holds (lease, window or operation) by the whole ttl from now; never shortens it.
-- Locks: its row, for no key update; waits at most 100 ms.
-- Writes: expires_at of lease or run. Clock: read under the lock.
-- Raises: ON001, ON003 (max_hold would be passed; still held until expires_at), 22023, 25006, 55P03 (ask again);
--   40001 above READ COMMITTED.
create function pgonce.renew_lease(
    token bigint,
    ttl   interval default null
)
returns timestamptz
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_ttl   interval;
    v_lease pgonce.lease;
    v_run   pgonce.run;
    v_until timestamptz;
begin
    perform pgonce._require_writable();
    v_ttl := pgonce._duration('ttl', renew_lease.ttl, false);
    select l.* into v_lease from pgonce.lease l where l.token = renew_lease.token for no key update;
    if found and v_lease.held and pgonce._may_use(v_lease.role) then
        v_until := pgonce._renewed(v_ttl, v_lease.ttl, v_lease.acquired_at, v_lease.max_until, v_lease.expires_at);
        update pgonce.lease l set expires_at = v_until where l.token = renew_lease.token;
        perform pgonce._secure(coalesce(v_ttl, v_lease.ttl));
        return v_until;
    end if;
    select r.* into v_run from pgonce.run r where r.token = renew_lease.token for no key update;
    if found and v_run.state = 'running' and not v_run.burnt and pgonce._may_use(v_run.role) then
        v_until := pgonce._renewed(v_ttl, v_run.ttl, v_run.claimed_at, v_run.max_until, v_run.expires_at);
        update pgonce.run r set expires_at = v_until where r.token = renew_lease.token;
        perform pgonce._secure(coalesce(v_ttl, v_run.ttl));
        return v_until;
    end if;
    perform pgonce._not_held(renew_lease.token);
end
$$;

comment on function pgonce.renew_lease(bigint, interval) is
    'Extends what the token holds by the whole ttl from now (null: the one granted); returns the new expires_at.';

-- Frees a lease (not before min_hold is over). False: the token holds nothing.
-- Locks: its row, for no key update; waits at most 100 ms.
-- Writes: lease. Clock: read under the lock.
-- Raises: 22023 (the token is a run's), 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.release_lease(token bigint)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_lease pgonce.lease;
begin
    perform pgonce._require_writable();
    select l.* into v_lease from pgonce.lease l where l.token = release_lease.token;
    if not found and exists (select from pgonce.run r where r.token = release_lease.token) then
        raise exception using
            errcode = '22023',
            message = 'token ' || release_lease.token || ' is that of a run, not of a lease',
            hint = 'Finish a window or an operation with mark_done, or give it back with mark_failed(token, retry_in => ''0'').';
    end if;
    if v_lease.held and pgonce._may_use(v_lease.role) then     -- somebody else's is not even locked
        update pgonce.lease l
        set held = false,
            nonce = null,
            expires_at = greatest(l.min_until, pgonce.clock())
        where l.token = release_lease.token and l.held;
        if found then
            perform pgonce._secure(v_lease.ttl);
            return true;
        end if;
    end if;
    return false;
end
$$;

comment on function pgonce.release_lease(bigint) is
    'Frees a lease (not before min_hold is over); false if the token holds nothing.';

-- Finishes a run and stores its result. The same call again with the same token: true, the first result is kept.
-- Locks: the run, for no key update; waits at most 100 ms. (A repeated call locks too: a yes is never a read alone.)
-- Writes: run. Clock: read under the lock.
-- Raises: ON001, 22023, 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.mark_done(
    token  bigint,
    result jsonb default null,
    keep   interval default null
)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_keep interval;
    v_run  pgonce.run;
    v_now  timestamptz;
begin
    perform pgonce._require_writable();
    v_keep := pgonce._duration('keep', mark_done.keep, true);
    v_run := pgonce._hold_run(mark_done.token);
    v_now := pgonce.clock();
    if v_run.state = 'running' then
        update pgonce.run r
        set state = 'done',
            finished_at = v_now,
            keep_until = v_now + coalesce(v_keep, r.keep),
            result = mark_done.result
        where r.token = mark_done.token;
    elsif v_run.state <> 'done' then
        perform pgonce._not_held(mark_done.token);
    end if;
    perform pgonce._secure(v_run.ttl);
    return true;
end
$$;

comment on function pgonce.mark_done(bigint, jsonb, interval) is
    'The run is finished; stores its result. keep: how long the record is kept at least.';

-- Ends an attempt that failed: the run can be claimed again after retry_in, within max_attempts. One that is not counted
-- (it was not the work's fault: a deploy stopped it) leaves its number to the next, unless max_attempts is 1.
-- The same call again with the same token: true, what the first one stored is kept.
-- Locks: the run, for no key update; waits at most 100 ms. (A repeated call locks too: a yes is never a read alone.)
-- Writes: run. Clock: read under the lock.
-- Raises: ON001, 22023, 25006, 55P03 (ask again); 40001 above READ COMMITTED.
create function pgonce.mark_failed(
    token    bigint,
    error    text default null,
    retry_in interval default null,
    counted  boolean default null
)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_retry_in interval;
    v_run      pgonce.run;
    v_now      timestamptz;
begin
    perform pgonce._require_writable();
    v_retry_in := pgonce._duration('retry_in', mark_failed.retry_in, true);
    v_run := pgonce._hold_run(mark_failed.token);
    v_now := pgonce.clock();
    if v_run.state = 'running' then
        update pgonce.run r
        set state = 'failed',
            finished_at = v_now,
            keep_until = v_now + r.keep,
            -- By default 30 seconds, doubling with each attempt, at most an hour: 30 * 2^7 is above 3600.
            retry_at = v_now + coalesce(v_retry_in, make_interval(secs => least(30 * 2 ^ least(r.attempt - 1, 7), 3600))),
            counted = coalesce(mark_failed.counted, true),
            error = mark_failed.error
        where r.token = mark_failed.token;
    elsif v_run.state <> 'failed' then
        perform pgonce._not_held(mark_failed.token);
    end if;
    perform pgonce._secure(v_run.ttl);
    return true;
end
$$;

comment on function pgonce.mark_failed(bigint, text, interval, boolean) is
    'The attempt failed; the run can be claimed again after retry_in (default 30 seconds, doubling, at most an hour).';

-- True while the token holds something (its lease, window or operation), else raises. For every worker, since the job's
-- own role may not be the one that claimed.
-- Locks: its row, for key share, until the transaction ends; waits at most 100 ms. Nobody takes over meanwhile, while
--   the holder's own heartbeat passes.
-- Writes: the row lock. Clock: not read.
-- Raises: ON001, 25006, 55P03 (a takeover is under way: ask again); 40001 above READ COMMITTED.
create function pgonce.assert_held(token bigint)
returns boolean
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
set lock_timeout = '100ms'
as $$
declare
    v_ttl interval;
begin
    perform pgonce._require_writable();
    select l.ttl into v_ttl from pgonce.lease l where l.token = assert_held.token and l.held for key share;
    if not found then
        select r.ttl into v_ttl
        from pgonce.run r
        where r.token = assert_held.token and r.state = 'running' and not r.burnt
        for key share;
    end if;
    if v_ttl is null then
        perform pgonce._not_held(assert_held.token);
    end if;
    perform pgonce._secure(v_ttl);
    return true;
end
$$;

comment on function pgonce.assert_held(bigint) is
    'True, or raises ON001; nobody can take over before the caller''s transaction ends.';

-- The one text that stands for a JSON value, whatever its key order, spaces and number format: keys in byte order, no
-- spaces, numbers without trailing zeros (1 = 1.0 = 1e0).
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023 (nested deeper than 200 levels: the stack that PostgreSQL allows by default is enough for some 500).
create function pgonce._canonical(
    payload jsonb,
    level   integer     -- how many arrays and objects it is in
)
returns text
language plpgsql
immutable
as $$
begin
    if _canonical.level > 200 then
        raise exception using
            errcode = '22023',
            message = 'payload is nested deeper than 200 levels',
            hint = 'Give as payload only the part of the message that tells it from others, or use a key of your own.';
    end if;
    case jsonb_typeof(_canonical.payload)
        when 'object' then
            return '{' || coalesce((
                select string_agg(to_json(e.key)::text || ':' || pgonce._canonical(e.value, _canonical.level + 1), ',' order by e.key collate "C")
                from jsonb_each(_canonical.payload) e), '') || '}';
        when 'array' then
            return '[' || coalesce((
                select string_agg(pgonce._canonical(e.value, _canonical.level + 1), ',' order by e.number)
                from jsonb_array_elements(_canonical.payload) with ordinality e (value, number)), '') || ']';
        when 'number' then
            return trim_scale((_canonical.payload #>> '{}')::numeric)::text;
        else
            return _canonical.payload::text;
    end case;
end
$$;

comment on function pgonce._canonical(jsonb, integer) is 'The one text that stands for a JSON value.';

-- An idempotency key made from the content: the same 64 hex digits for the same payload in every client.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce.key_of(
    payload jsonb,
    version text default null
)
returns text
language plpgsql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if key_of.payload is null then
        perform pgonce._refuse_null('payload', 'Give the message as jsonb; a JSON null is ''null''::jsonb.');
    end if;
    if key_of.version is not null then
        perform pgonce._check_name('version', key_of.version collate "C", 200);
    end if;
    return encode(sha256(convert_to(
        coalesce(to_json(key_of.version)::text, 'null') || ' ' || pgonce._canonical(key_of.payload, 0), 'UTF8')), 'hex');
end
$$;

comment on function pgonce.key_of(jsonb, text) is
    'A key made from the content: the same for the same payload whatever its key order, spaces and number format.';

-- The newest revision installed.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce.schema_version()
returns integer
language plpgsql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return 1;
end
$$;

comment on function pgonce.schema_version() is 'The newest revision installed.';

-- Every window and operation on record. A result is shown only to those for whom the run's token would work.

create view pgonce.runs as
select
    r.name,
    r.key,
    r.state,
    r.attempt,
    r.owner,
    r.role,
    case when not r.burnt then r.token end as token,
    r.claimed_at,
    r.expires_at,
    r.state = 'running' and r.expires_at <= pgonce.clock() as expired,
    r.finished_at,
    r.window_start,
    r.window_end,
    case when r.result is not null and pgonce._may_see(r.role) then r.result end as result,
    r.error
from pgonce.run r;

comment on view pgonce.runs is 'Every window and operation on record.';
comment on column pgonce.runs.name is 'Job or scope.';
comment on column pgonce.runs.key is 'Start of the window as YYYY-MM-DDTHH:MI:SSZ, or the operation''s key.';
comment on column pgonce.runs.state is 'running, done, failed, or replaced by a newer window.';
comment on column pgonce.runs.attempt is 'Number of the last attempt, from 1.';
comment on column pgonce.runs.owner is 'Label of the last holder.';
comment on column pgonce.runs.role is 'Role the token was granted to.';
comment on column pgonce.runs.token is 'Token of the last grant; null once it is burnt.';
comment on column pgonce.runs.claimed_at is 'When the last attempt was granted.';
comment on column pgonce.runs.expires_at is 'Until when the holder cannot be taken over.';
comment on column pgonce.runs.expired is 'Still running, but anybody may take over.';
comment on column pgonce.runs.finished_at is 'When the last attempt was finished (done, failed or replaced).';
comment on column pgonce.runs.window_start is 'The fire time that opened the window; null: an operation.';
comment on column pgonce.runs.window_end is 'The next fire time; null: an operation.';
comment on column pgonce.runs.result is 'What mark_done stored, if your role may see it.';
comment on column pgonce.runs.error is 'What the last mark_failed stored.';

-- Every lease that is held, and those released that min_hold still keeps from being granted.

create view pgonce.leases as
select
    l.name,
    l.slot,
    l.owner,
    l.role,
    l.token,
    l.acquired_at,
    l.expires_at,
    l.expires_at <= pgonce.clock() as expired
from pgonce.lease l
where l.held or l.expires_at > pgonce.clock();

comment on view pgonce.leases is 'Every lease held, and those released that min_hold keeps from being granted.';
comment on column pgonce.leases.name is 'Name of the lease.';
comment on column pgonce.leases.slot is 'Number of the slot, from 1.';
comment on column pgonce.leases.owner is 'Label of the holder.';
comment on column pgonce.leases.role is 'Role the token was granted to.';
comment on column pgonce.leases.token is 'Token of the grant.';
comment on column pgonce.leases.acquired_at is 'When it was granted.';
comment on column pgonce.leases.expires_at is 'Until when nobody else is granted the slot.';
comment on column pgonce.leases.expired is 'Still held, but anybody may take over.';

-- Takes from a role every right in the schema.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: nothing.
create function pgonce._revoke(role text)   -- as "revoke" takes it: quoted where it must be, or public
returns void
language plpgsql
volatile
as $$
declare
    v_type regtype;
begin
    execute 'revoke all on schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all tables in schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all sequences in schema pgonce from ' || _revoke.role || ' cascade';
    execute 'revoke all on all functions in schema pgonce from ' || _revoke.role || ' cascade';
    -- The row types, too: a table of somebody else's with a column of one would stand in the way of altering ours.
    for v_type in
        select t.oid
        from pg_catalog.pg_type t
        where t.typnamespace = 'pgonce'::regnamespace and t.typtype = 'c'
    loop
        execute 'revoke all on type ' || v_type || ' from ' || _revoke.role || ' cascade';
    end loop;
end
$$;

comment on function pgonce._revoke(text) is 'Takes from a role (or public) every right in the schema.';

-- What a role that is granted something needs first: that it exists, and that nothing else is open to it or to PUBLIC than
-- grant_worker and grant_reader give. A dump restored without its privileges leaves PUBLIC what PostgreSQL gives by default
-- (to execute every function), and the role whatever default privileges gave it.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce._prepare_role(role text)
returns void
language plpgsql
volatile
as $$
declare
    v_rights text;
begin
    if not exists (select from pg_catalog.pg_roles r where r.rolname = _prepare_role.role) then
        raise exception using
            errcode = '22023',
            message = coalesce('role does not exist: ' || pgonce._quoted(_prepare_role.role), 'role must not be null'),
            hint = 'Give the name of a role exactly as pg_roles shows it; PUBLIC is never granted anything.';
    end if;
    perform pgonce._revoke('public');
    for v_rights in
        select case c.relkind
            when 'S' then 'all on sequence '
            when 'r' then 'all on table '
            else 'insert, update, delete, truncate, references, trigger on table '    -- a reader may select the views
        end || c.oid::regclass
        from pg_catalog.pg_class c
        where c.relnamespace = 'pgonce'::regnamespace and c.relkind in ('r', 'S', 'v')
        union all
        select 'all on function ' || p.oid::regprocedure
        from pg_catalog.pg_proc p
        where p.pronamespace = 'pgonce'::regnamespace
          and (left(p.proname, 1) = '_' and p.proname <> '_may_see'
               or p.proname in ('define_job', 'grant_worker', 'grant_reader'))
        union all
        select 'create on schema pgonce'
    loop
        execute 'revoke ' || v_rights || ' from ' || quote_ident(_prepare_role.role) || ' cascade';
    end loop;
end
$$;

comment on function pgonce._prepare_role(text) is 'Checks the role, and closes what neither it nor PUBLIC may have.';

-- Lets a role claim, renew and finish: it may execute the functions, and touches no table. PUBLIC keeps nothing.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce.grant_worker(role text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_function regprocedure;
begin
    perform pgonce._prepare_role(grant_worker.role collate "C");
    execute 'grant usage on schema pgonce to ' || quote_ident(grant_worker.role);
    execute 'grant usage on type pgonce.claim to ' || quote_ident(grant_worker.role);
    for v_function in
        select p.oid
        from pg_catalog.pg_proc p
        join pg_catalog.pg_namespace n on n.oid = p.pronamespace
        where n.nspname = 'pgonce'
          and p.proname in (
              'claim_window', 'claim_key', 'acquire_lease', 'renew_lease', 'release_lease', 'mark_done', 'mark_failed',
              'assert_held', 'window_at', 'windows', 'key_of', 'schema_version')
    loop
        execute 'grant execute on function ' || v_function || ' to ' || quote_ident(grant_worker.role);
    end loop;
end
$$;

comment on function pgonce.grant_worker(text) is 'Lets a role claim, renew and finish; it touches no table.';

-- Lets a role read the views, and execute what they call. PUBLIC keeps nothing.
-- Locks: catalog rows. Writes: privileges. Clock: not read.
-- Raises: 22023.
create function pgonce.grant_reader(role text)
returns void
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    perform pgonce._prepare_role(grant_reader.role collate "C");
    execute 'grant usage on schema pgonce to ' || quote_ident(grant_reader.role);
    execute 'grant select on pgonce.runs, pgonce.leases to ' || quote_ident(grant_reader.role);
    execute 'grant execute on function pgonce.clock(), pgonce._may_see(text) to '
        || quote_ident(grant_reader.role);
end
$$;

comment on function pgonce.grant_reader(text) is 'Lets a role read the views.';

-- Who may do what. Everything is the owner's and its members', but for what grant_worker (the functions that claim, renew
-- and finish) and grant_reader (the views) give to a role. Nothing is left to PUBLIC, nor to whoever the installer's
-- default privileges name.

do $$
declare
    v_role text;
begin
    perform pgonce._revoke('public');
    for v_role in
        select distinct pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(granted.grantee))
        from (
            select n.nspacl as acl, n.nspowner as owner from pg_catalog.pg_namespace n where n.nspname = 'pgonce'
            union all
            select c.relacl, c.relowner from pg_catalog.pg_class c where c.relnamespace = 'pgonce'::regnamespace
            union all
            select p.proacl, p.proowner from pg_catalog.pg_proc p where p.pronamespace = 'pgonce'::regnamespace
            union all
            select t.typacl, t.typowner from pg_catalog.pg_type t where t.typnamespace = 'pgonce'::regnamespace
        ) object, lateral pg_catalog.aclexplode(object.acl) granted
        where granted.grantee not in (0, object.owner)
    loop
        perform pgonce._revoke(v_role);
    end loop;
end
$$;
