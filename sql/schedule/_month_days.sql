-- The days that one item of the day of the month names in each of the 28 kinds of months (28 to 31 days long, beginning
-- with a Sunday to a Saturday), as bits; added to the days given.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._month_days(
    days     bigint[],
    schedule text,
    item     text
)
returns bigint[]
language plpgsql
immutable
as $$
declare
    v_days    bigint[] := _month_days.days;
    v_last    constant text[] := regexp_match(upper(_month_days.item collate "C"), '^L(-([0-9]{1,2}))?$');
    v_near    constant text[] := regexp_match(upper(_month_days.item collate "C"), '^(L|[0-9]{1,2})W$');
    v_number  constant integer := coalesce(v_last[2], nullif(v_near[1], 'L'))::integer;   -- null: the last day
    v_set     bigint;
    v_length  integer;
    v_day     integer;
    v_weekday integer;
begin
    if v_last is null and v_near is null then
        v_set := pgonce._item(_month_days.schedule, 3, _month_days.item);
    elsif v_number not between 1 and (case when v_last is null then 31 else 30 end) then
        perform pgonce._refuse_item(_month_days.schedule, 3, _month_days.item);
    end if;
    for v_kind in 1 .. 28 loop
        v_length := 28 + (v_kind - 1) / 7;
        if v_set is null then
            v_day := case when v_last is null then coalesce(v_number, v_length)
                          else v_length - coalesce(v_number, 0) end;
            v_weekday := mod(v_kind - 1 + v_day - 1, 7);   -- 0: Sunday
            v_days[v_kind] := v_days[v_kind] | case
                when v_day not between 1 and v_length then 0
                when v_near is null or v_weekday between 1 and 5 then 1::bigint << v_day
                when v_weekday = 6 then 1::bigint << case when v_day = 1 then 3 else v_day - 1 end
                else 1::bigint << case when v_day = v_length then v_day - 2 else v_day + 1 end
            end;
        else
            v_days[v_kind] := v_days[v_kind] | (v_set & ((2::bigint << v_length) - 1));
        end if;
    end loop;
    return v_days;
end
$$;

comment on function pgonce._month_days(bigint[], text, text) is
    'The days that one item of the day of the month names in each kind of month, added to those given.';
