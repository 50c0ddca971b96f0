-- The last day, not after the given one, that the schedule names; both as days since 1800-01-05.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: XX000 after 41 years without such a day: _compile refuses schedules that have none.
create function pgonce._day_before(
    compiled bigint[],
    day      integer
)
returns integer
language plpgsql
immutable
as $$
declare
    v_date   constant date := date '1800-01-05' + _day_before.day;
    v_year   integer := date_part('year', v_date)::integer;
    v_month  integer := date_part('month', v_date)::integer;
    v_months bigint := _day_before.compiled[4] & ((2::bigint << v_month) - 1);
    v_bits   bigint;
    v_first  integer;   -- first day of the month
    v_length integer;
begin
    for v_turn in 1 .. 41 * 12 loop
        if v_months = 0 then
            v_year := v_year - 1;
            v_months := _day_before.compiled[4];
        end if;
        v_month := pgonce._highest(v_months);
        v_months := v_months - (1::bigint << v_month);
        v_first := make_date(v_year, v_month, 1) - date '1800-01-05';
        v_length := make_date(v_year + v_month / 12, mod(v_month, 12) + 1, 1) - date '1800-01-05' - v_first;
        v_bits := _day_before.compiled[7 + 7 * (v_length - 28) + mod(v_first, 7)]
            & ((2::bigint << least(_day_before.day - v_first + 1, 31)) - 1);
        if v_bits > 0 then
            return v_first - 1 + pgonce._highest(v_bits);
        end if;
    end loop;
    raise exception using errcode = 'XX000', message = 'the schedule names no day within 41 years';
end
$$;

comment on function pgonce._day_before(bigint[], integer) is
    'The last day of a compiled schedule, not after the given one.';
