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
