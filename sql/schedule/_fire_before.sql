-- The last fire time, not after an instant; both as seconds since 1800-01-05.
-- Zones jump by at most 24 hours and never twice within 72. So 50 hours before an instant there is one transition or
-- none, and if there is none, the later 26 of them show every local time for the first and only time.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._fire_before(
    compiled bigint[],
    timezone text,
    instant  bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_repeat  constant boolean := _fire_before.compiled[1] & 1 > 0;
    v_move    constant boolean := _fire_before.compiled[1] & 2 > 0;
    v_at      bigint := _fire_before.instant;
    v_offset  bigint;   -- at v_at
    v_earlier bigint;   -- 50 hours earlier
    v_jump    bigint;   -- the transition between them
    v_found   bigint;   -- local time that matches
begin
    loop
        v_offset := pgonce._wall(_fire_before.timezone, v_at) - v_at;
        v_earlier := pgonce._wall(_fire_before.timezone, v_at - 180000) - v_at + 180000;
        v_found := pgonce._before(_fire_before.compiled, v_at + v_offset);
        if v_earlier = v_offset then
            if v_found - v_offset >= v_at - 93600 then
                return v_found - v_offset;
            end if;
            v_at := v_found - v_offset + 93600;   -- far back: look at the offsets there
        else
            v_jump := pgonce._transition(_fire_before.timezone, v_at - 180000, v_at);
            if v_found >= v_jump + (case when v_repeat then v_offset else greatest(v_offset, v_earlier) end) then
                return v_found - v_offset;
            end if;
            if v_move and v_found >= v_jump + v_earlier then
                return v_jump;                    -- the clock jumped over it
            end if;
            v_at := v_jump - 1;
        end if;
    end loop;
end
$$;

comment on function pgonce._fire_before(bigint[], text, bigint) is
    'The last fire time of a compiled schedule, not after an instant.';
