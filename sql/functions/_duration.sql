-- Turns an interval into fixed seconds (a day is 24 h), so that adding it to an instant depends on no time zone.
-- Null stays null. Allowed: 100 ms to 366 days, and 0 where it means none.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._duration(
    argument text,
    value    interval,
    zero     boolean
)
returns interval
language plpgsql
immutable
as $$
declare
    v_days    integer;
    v_seconds numeric;
    v_fault   text;
begin
    if _duration.value is null then
        return null;
    end if;
    if not isfinite(_duration.value) then
        v_fault := 'must be finite';
    elsif extract(year from _duration.value) <> 0 or extract(month from _duration.value) <> 0 then
        v_fault := 'must not contain months or years';
    else
        v_days := extract(day from _duration.value);
        v_seconds := extract(epoch from _duration.value);
        if v_seconds < 0 then
            v_fault := 'must not be negative';
        elsif v_days < 0 or v_seconds < v_days * 86400::bigint then
            v_fault := 'must not mix signs';
        elsif v_seconds > 366 * 86400 then
            v_fault := 'is too long';
        elsif v_seconds < 0.1 and not (_duration.zero and v_seconds = 0) then
            v_fault := 'is too short';
        end if;
    end if;
    if v_fault is not null then
        raise exception using
            errcode = '22023',
            message = _duration.argument || ' ' || v_fault || ': ' || _duration.value,
            hint = 'Give ' || _duration.argument || ' as 100 milliseconds to 366 days of weeks, days, hours, minutes or seconds'
                || case when _duration.zero then ', or 0 for none.' else '.' end;
    end if;
    return make_interval(secs => v_seconds);
end
$$;

comment on function pgonce._duration(text, interval, boolean) is
    'The same span in fixed seconds; raises 22023 unless it is 100 ms to 366 days (or 0 where that means none).';
