-- The first fire time after an instant; both as seconds since 1800-01-05. See _fire_before for the hours.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fire_after(
    compiled bigint[],
    timezone text,
    instant  bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_repeat  constant boolean := _fire_after.compiled[1] & 1 > 0;
    v_move    constant boolean := _fire_after.compiled[1] & 2 > 0;
    v_at      bigint := _fire_after.instant;
    v_offset  bigint := pgonce._wall(_fire_after.timezone, v_at) - v_at;
    v_wall    bigint := v_at + v_offset;   -- search after this local time
    v_other   bigint;                      -- offset earlier or later
    v_jump    bigint;                      -- transition between
    v_found   bigint;                      -- local time that matches
begin
    if not v_repeat then
        v_other := pgonce._wall(_fire_after.timezone, v_at - 86400) - v_at + 86400;
        if v_other > v_offset then             -- local times of before the transition may come again: pass over them
            v_jump := pgonce._transition(_fire_after.timezone, v_at - 86400, v_at);
            v_wall := greatest(v_wall, v_jump + v_other - 1);
        end if;
    end if;
    loop
        v_found := pgonce._after(_fire_after.compiled, v_wall);
        v_other := pgonce._wall(_fire_after.timezone, v_at + 180000) - v_at - 180000;
        if v_other = v_offset then
            if v_found - v_offset <= v_at + 180000 then
                return v_found - v_offset;
            end if;
            v_at := v_found - v_offset - 180000;   -- far ahead: look at the offsets there
            v_offset := pgonce._wall(_fire_after.timezone, v_at) - v_at;
            v_wall := v_at + v_offset;
        else
            v_jump := pgonce._transition(_fire_after.timezone, v_at, v_at + 180000);
            if v_found < v_jump + v_offset then
                return v_found - v_offset;
            end if;
            if v_move and v_found < v_jump + v_other then
                return v_jump;                     -- the clock jumps over it
            end if;
            v_at := v_jump;
            v_wall := v_jump - 1 + case when v_repeat then v_other else greatest(v_offset, v_other) end;
            v_offset := v_other;
        end if;
    end loop;
end
$$;

comment on function pgonce._fire_after(bigint[], text, bigint) is
    'The first fire time of a compiled schedule after an instant.';
