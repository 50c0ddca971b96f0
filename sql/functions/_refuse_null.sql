-- Refuses a required argument that is null.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023, always.
create function pgonce._refuse_null(
    argument text,
    hint     text
)
returns void
language plpgsql
immutable
as $$
begin
    raise exception using
        errcode = '22023',
        message = _refuse_null.argument || ' must not be null',
        hint = _refuse_null.hint;
end
$$;

comment on function pgonce._refuse_null(text, text) is 'Raises 22023 for a required argument that is null.';
