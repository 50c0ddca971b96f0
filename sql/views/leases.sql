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
