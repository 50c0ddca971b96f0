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
