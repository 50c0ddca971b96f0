-- The instant at which the zone's offset changes, given that it does so once between two instants.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._transition(
    timezone text,
    early    bigint,
    late     bigint
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_early  bigint := _transition.early;
    v_late   bigint := _transition.late;
    v_middle bigint;
    v_offset constant bigint := pgonce._wall(_transition.timezone, v_late) - v_late;
begin
    while v_late - v_early > 1 loop
        v_middle := (v_early + v_late) / 2;
        if pgonce._wall(_transition.timezone, v_middle) - v_middle = v_offset then
            v_late := v_middle;
        else
            v_early := v_middle;
        end if;
    end loop;
    return v_late;
end
$$;

comment on function pgonce._transition(text, bigint, bigint) is
    'The instant between two at which the zone''s offset changes.';
