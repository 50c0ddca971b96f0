-- The window of a compiled schedule that contains an instant: from the last fire time not after it to the next.
-- The fire times of a cron expression whose fields match the local times in L, and the hours in H, are:
--   the first instant that shows a local time in L;
--   the later ones too, if it repeats: H is all 24 hours, or the text of the minute begins with *;
--   the instant at which the clock jumps over a local time in L, if it moves: H is not all 24 hours.
-- So what names hours runs once a named time and day, and what covers all hours follows the clock.
-- From PostgreSQL 18 on, "at time zone" takes a name for an abbreviation of the session's TimeZone first: in a session
-- with TimeZone = 'UTC-5', UTC would be five hours off. Hence the setting, which has no such abbreviations.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._window(
    compiled         bigint[],
    timezone         text,
    at               timestamptz,
    out window_start timestamptz,
    out window_end   timestamptz
)
language plpgsql
immutable
set timezone = 'UTC'
as $$
declare
    -- whole seconds since 1800-01-05, as in all that this function calls
    v_at    constant bigint := date_part('epoch', date_trunc('second', _window.at at time zone 'UTC'))::bigint
                               + 5364316800;
    v_start bigint;
    v_end   bigint;
begin
    if _window.compiled[1] & 8 > 0 then   -- every: counted from 2000-01-03 00:00 UTC, a Monday
        v_start := v_at - mod(v_at - mod(6311174400, _window.compiled[2]), _window.compiled[2]);
        v_end := v_start + _window.compiled[2];
    else
        v_start := pgonce._fire_before(_window.compiled, _window.timezone, v_at);
        v_end := pgonce._fire_after(_window.compiled, _window.timezone, v_at);
    end if;
    window_start := to_timestamp(v_start - 5364316800);
    window_end := to_timestamp(v_end - 5364316800);
end
$$;

comment on function pgonce._window(bigint[], text, timestamptz) is
    'The window of a compiled schedule that contains an instant.';
