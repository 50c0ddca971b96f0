-- The first local time, after the given one, whose fields match; both as seconds since 1800-01-05 on the wall.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._after(
    compiled bigint[],
    wall     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_wall  bigint := _after.wall / 60 * 60 + 60;   -- the next full minute
    v_day   integer := (v_wall / 86400)::integer;
    v_hour  integer := (mod(v_wall, 86400) / 3600)::integer;
    v_found integer := case when _after.compiled[1] & 4 > 0 then v_day
                            else pgonce._day_after(_after.compiled, v_day) end;
    v_bits  bigint;
begin
    if v_found = v_day then
        v_bits := _after.compiled[2] & (-1::bigint << (mod(v_wall, 3600) / 60)::integer);
        if v_bits > 0 and _after.compiled[3] & (1::bigint << v_hour) > 0 then
            return v_day * 86400::bigint + v_hour * 3600 + pgonce._lowest(v_bits) * 60;
        end if;
        v_bits := _after.compiled[3] & (-2::bigint << v_hour);
        if v_bits > 0 then
            return v_day * 86400::bigint + pgonce._lowest(v_bits) * 3600 + mod(_after.compiled[5], 3600);
        end if;
        v_found := case when _after.compiled[1] & 4 > 0 then v_day + 1
                        else pgonce._day_after(_after.compiled, v_day + 1) end;
    end if;
    return v_found * 86400::bigint + _after.compiled[5];
end
$$;

comment on function pgonce._after(bigint[], bigint) is
    'The first local time of a compiled schedule, after the given one.';
