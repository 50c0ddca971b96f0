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
