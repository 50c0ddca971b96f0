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
