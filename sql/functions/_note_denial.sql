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
