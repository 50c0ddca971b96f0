-- The number that one value of a field means: digits, or the three-letter name of a month or a day. Null: neither.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._value(
    field integer,
    value text
)
returns integer
language plpgsql
immutable
as $$
begin
    return case
        when _value.value ~ '^[0-9]{1,2}$' then _value.value::integer
        when _value.field = 4 then array_position(
            array['JAN', 'FEB', 'MAR', 'APR', 'MAY', 'JUN', 'JUL', 'AUG', 'SEP', 'OCT', 'NOV', 'DEC'], _value.value)
        when _value.field = 5 then array_position(
            array['SUN', 'MON', 'TUE', 'WED', 'THU', 'FRI', 'SAT'], _value.value) - 1
    end;
end
$$;

comment on function pgonce._value(integer, text) is
    'The number that one value of a cron field means; null when it means none.';
