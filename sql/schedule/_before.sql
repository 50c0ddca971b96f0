-- The last local time, not after the given one, whose fields match; both as seconds since 1800-01-05 on the wall.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._before(
    compiled bigint[],
    wall     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_day   integer := (_before.wall / 86400)::integer;
    v_hour  integer := (mod(_before.wall, 86400) / 3600)::integer;
    v_found integer := case when _before.compiled[1] & 4 > 0 then v_day
                            else pgonce._day_before(_before.compiled, v_day) end;
    v_bits  bigint;
begin
    if v_found = v_day then
        v_bits := _before.compiled[2] & ((2::bigint << (mod(_before.wall, 3600) / 60)::integer) - 1);
        if v_bits > 0 and _before.compiled[3] & (1::bigint << v_hour) > 0 then
            return v_day * 86400::bigint + v_hour * 3600 + pgonce._highest(v_bits) * 60;
        end if;
        v_bits := _before.compiled[3] & ((1::bigint << v_hour) - 1);
        if v_bits > 0 then
            return v_day * 86400::bigint + pgonce._highest(v_bits) * 3600 + mod(_before.compiled[6], 3600);
        end if;
        v_found := case when _before.compiled[1] & 4 > 0 then v_day - 1
                        else pgonce._day_before(_before.compiled, v_day - 1) end;
    end if;
    return v_found * 86400::bigint + _before.compiled[6];
end
$$;

comment on function pgonce._before(bigint[], bigint) is
    'The last local time of a compiled schedule, not after the given one.';
