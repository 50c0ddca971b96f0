-- A denial found under the locks, when they have been let go (and with them what _deny wrote): recorded where its job or
-- scope asks for that, and handed on.
-- Locks: nothing. Writes: table denial, only where record_denials is on. Clock: read for that.
-- Raises: nothing.
create function pgonce._record_denial(
    denied pgonce.claim,
    asker  text
)
returns pgonce.claim
language plpgsql
volatile
as $$
begin
    insert into pgonce.denial (at, name, key, owner, reason)
    select pgonce.clock(), _record_denial.denied.name, _record_denial.denied.key, pgonce._owner(_record_denial.asker),
           _record_denial.denied.reason
    from pgonce.job j
    where j.job = _record_denial.denied.name and j.record_denials;
    return _record_denial.denied;
end
$$;

comment on function pgonce._record_denial(pgonce.claim, text) is 'Records a denial found under the locks, and hands it on.';
