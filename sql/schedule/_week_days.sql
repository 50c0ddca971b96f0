-- The days that one item of the day of the week names in each of the 28 kinds of months (28 to 31 days long, beginning
-- with a Sunday to a Saturday), as bits; added to the days given.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._week_days(
    days     bigint[],
    schedule text,
    item     text
)
returns bigint[]
language plpgsql
immutable
as $$
declare
    v_days    bigint[] := _week_days.days;
    v_part    constant text[] := regexp_match(upper(_week_days.item collate "C"),
        '^([0-9]{1,2}|[A-Z]{3})(L|#([0-9]{1,2}))$');
    v_weekday constant integer := pgonce._value(5, v_part[1]);
    v_which   constant integer := v_part[3]::integer;   -- null: the last one
    v_set     bigint;
    v_bits    bigint;
    v_length  integer;
    v_first   integer;
    v_day     integer;
begin
    if v_part is null then
        v_set := pgonce._item(_week_days.schedule, 5, _week_days.item);
    elsif (v_weekday between 0 and 7 and coalesce(v_which, 1) between 1 and 5) is not true then
        perform pgonce._refuse_item(_week_days.schedule, 5, _week_days.item);
    end if;
    for v_kind in 1 .. 28 loop
        v_length := 28 + (v_kind - 1) / 7;
        v_first := mod(v_kind - 1, 7);   -- 0: Sunday
        if v_set is null then
            v_day := 1 + mod(v_weekday + 7 - v_first, 7) + 7 * (coalesce(v_which, 5) - 1);
            if v_which is null and v_day > v_length then
                v_day := v_day - 7;
            end if;
            v_days[v_kind] := v_days[v_kind] | case when v_day > v_length then 0 else 1::bigint << v_day end;
        else
            -- the week from the 1st on, laid end to end five times: bits 1, 8, 15, 22 and 29 are 541098242
            v_bits := ((v_set >> v_first) | (v_set << (7 - v_first))) & 127;
            v_days[v_kind] := v_days[v_kind] | ((v_bits * 541098242) & ((2::bigint << v_length) - 1));
        end if;
    end loop;
    return v_days;
end
$$;

comment on function pgonce._week_days(bigint[], text, text) is
    'The days that one item of the day of the week names in each kind of month, added to those given.';
