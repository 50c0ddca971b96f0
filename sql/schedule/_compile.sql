-- Parses a schedule into the numbers that the search works on:
-- [1] 256 * version of this format + 1 repeat + 2 move (see _window) + 4 every day + 8 every interval;
-- every: [2] seconds;
-- cron, sets as bits: [2] minutes, [3] hours, [4] months, [5] and [6] first and last second of a day to fire at,
-- [7..34] days in each of the 28 kinds of months: [7 + 7 * (length - 28) + weekday of the 1st].
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._compile(schedule text)
returns bigint[]
language plpgsql
stable
as $$
declare
    v_all_hours  constant bigint := (1::bigint << 24) - 1;
    v_all_months constant bigint := (1::bigint << 13) - 2;
    v_can_last   constant bigint[] := array[4, 4, 2640, 5546]::bigint[];   -- months that can last 28, 29, 30, 31 days
    v_fields     text[];
    v_item       text;
    v_sets       bigint[] := array_fill(0::bigint, array[4]);
    v_dom        bigint[] := array_fill(0::bigint, array[28]);
    v_dow        bigint[] := v_dom;
    v_fires      boolean := false;
    v_daily      boolean := true;
begin
    perform pgonce._check_schedule(_compile.schedule);
    if upper(_compile.schedule collate "C") ~ E'^EVERY([ \t]|$)' then
        return array[256 + 8, pgonce._every(_compile.schedule)];
    end if;
    v_fields := regexp_split_to_array(case lower(_compile.schedule collate "C")
        when '@yearly' then '0 0 1 1 *'
        when '@annually' then '0 0 1 1 *'
        when '@monthly' then '0 0 1 * *'
        when '@weekly' then '0 0 * * 0'
        when '@daily' then '0 0 * * *'
        when '@midnight' then '0 0 * * *'
        when '@hourly' then '0 * * * *'
        else _compile.schedule end, E'[ \t]+');
    for v_field in 1 .. 5 loop
        foreach v_item in array string_to_array(v_fields[v_field], ',') loop
            case v_field
                when 3 then v_dom := pgonce._month_days(v_dom, _compile.schedule, v_item);
                when 5 then v_dow := pgonce._week_days(v_dow, _compile.schedule, v_item);
                else v_sets[v_field] := v_sets[v_field] | pgonce._item(_compile.schedule, v_field, v_item);
            end case;
        end loop;
    end loop;
    -- Both day fields must match where the text of one begins with a star, else one of them: as cron has it.
    for v_kind in 1 .. 28 loop
        v_dom[v_kind] := case when left(v_fields[3], 1) = '*' or left(v_fields[5], 1) = '*'
            then v_dom[v_kind] & v_dow[v_kind] else v_dom[v_kind] | v_dow[v_kind] end;
        v_daily := v_daily and v_dom[v_kind] = (2::bigint << (28 + (v_kind - 1) / 7)) - 2;
        v_fires := v_fires or v_dom[v_kind] > 0 and v_sets[4] & v_can_last[1 + (v_kind - 1) / 7] > 0;
    end loop;
    if not v_fires then
        perform pgonce._refuse_schedule(
            _compile.schedule,
            'never fires',
            'No month named has such a day; the last day of a month is L: 0 0 L 2 *.');
    end if;
    return array[
        256
            + case when v_sets[2] = v_all_hours or left(v_fields[1], 1) = '*' then 1 else 0 end
            + case when v_sets[2] <> v_all_hours then 2 else 0 end
            + case when v_daily and v_sets[4] = v_all_months then 4 else 0 end,
        v_sets[1],
        v_sets[2],
        v_sets[4],
        pgonce._lowest(v_sets[2]) * 3600 + pgonce._lowest(v_sets[1]) * 60,
        pgonce._highest(v_sets[2]) * 3600 + pgonce._highest(v_sets[1]) * 60
    ] || v_dom;
end
$$;

comment on function pgonce._compile(text) is 'Parses a schedule into the numbers that the search works on.';
