-- Who may do what. Nothing is granted to PUBLIC. Everything is the owner's and its members', but for what
-- grant_worker (the functions that claim, renew and finish) and grant_reader (the views) give to a role.

revoke all on schema pgonce from public;
-- The row types, too: a table of somebody else's with a column of one would stand in the way of altering ours.
revoke all on type
    pgonce.claim, pgonce.job, pgonce.run, pgonce.lease, pgonce.denial, pgonce.runs, pgonce.leases
from public;
revoke all on all tables in schema pgonce from public;
revoke all on all sequences in schema pgonce from public;
revoke all on all functions in schema pgonce from public;
