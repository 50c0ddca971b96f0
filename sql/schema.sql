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
