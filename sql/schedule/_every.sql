-- The whole seconds of "every <interval>"; a day has 24 hours.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._every(schedule text)
returns bigint
language plpgsql
stable
as $$
declare
    v_text    constant text := ltrim(substring(_every.schedule from 6), ' ' || chr(9));
    v_span    interval;
    v_units   interval;
    v_seconds double precision;
    v_fault   text;
begin
    -- What a minus means depends on IntervalStyle; without signs nothing does.
    if v_text !~ '[+-]' then
        begin
            v_span := v_text::interval;
            -- Half a month would be 15 days: with each number replaced by 1, months and years stay what they are.
            v_units := regexp_replace(v_text, '[0-9.]+', '1', 'g')::interval;
        exception when data_exception then
            v_span := null;
        end;
    end if;
    v_seconds := date_part('epoch', v_span);
    v_fault := case
        when v_text ~ '[+-]' then 'has a sign'
        when v_units is null then 'names no interval'
        when not isfinite(v_span) then 'never ends'
        when date_part('year', v_units) <> 0 or date_part('month', v_units) <> 0 then 'counts in months or years'
        when v_seconds < 1 then 'is shorter than a second'
        when v_seconds > 366 * 86400 then 'is longer than 366 days'
        when v_seconds <> trunc(v_seconds) then 'does not make whole seconds'
    end;
    if v_fault is not null then
        perform pgonce._refuse_schedule(_every.schedule, v_fault, case v_fault
            when 'counts in months or years' then 'Write @monthly or @yearly, or every 30 days.'
            else 'Write every and 1 second to 366 days, in whole seconds: every 90 seconds, every 2 hours.' end);
    end if;
    return v_seconds::bigint;
end
$$;

comment on function pgonce._every(text) is 'The whole seconds of an "every" schedule.';
