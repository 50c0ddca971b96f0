-- The nightly report, once, however many hosts start this at the same time:
--
--     psql -X -f nightly.sql
--
-- Exit status: 0 when the report is made, now or before; 3 when it is not: somebody else is at it, or the work failed
-- (then the window can be claimed again once the ttl is over). Ask again later. 2: no connection.

\set ON_ERROR_STOP on

select *, reason = 'done' as done_before
from pgonce.claim_window('nightly', '0 3 * * *', timezone => 'Europe/Berlin', ttl => '30 minutes') \gset

\if :claimed
    \echo window :key is ours, attempt :attempt
    begin;
    insert into report (job, window_start, host) values (:'name', :'window_start', :'owner');
    select pgonce.mark_done(:token) \gset
    commit;
\elif :done_before
    \echo window :key was done before
\else
    \echo window :key is not ours: :reason
    select pgonce.assert_held(null);    -- raises ON001, so that psql ends with status 3
\endif
