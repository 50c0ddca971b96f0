-- Refuses an instant that no schedule reaches: null, infinite, or outside the years 1900 to 9998.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_instant(
    argument text,
    value    timestamptz
)
returns void
language plpgsql
stable
as $$
begin
    -- 1900-01-01 and 9999-01-01 in UTC, written so that no setting of the session matters
    if _check_instant.value >= to_timestamp(-2208988800) and _check_instant.value < to_timestamp(253370764800) then
        return;
    end if;
    raise exception using
        errcode = '22023',
        message = _check_instant.argument
            || case when _check_instant.value is null then ' must not be null'
                    when not isfinite(_check_instant.value) then ' must be finite: ' || _check_instant.value
                    else ' is out of range: ' || _check_instant.value end,
        hint = 'Give ' || _check_instant.argument || ' as a timestamptz from the year 1900 to the year 9998.';
end
$$;

comment on function pgonce._check_instant(text, timestamptz) is
    'Raises 22023 unless value is an instant of the years 1900 to 9998.';
