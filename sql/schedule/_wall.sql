-- What a clock on the wall of the zone shows at an instant; both as seconds since 1800-01-05 (a Sunday, so that day
-- numbers tell the weekday, and early enough that no number is negative). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._wall(
    timezone text,
    instant  bigint
)
returns bigint
language sql
immutable
as $$
    select date_part('epoch', to_timestamp(_wall.instant - 5364316800) at time zone _wall.timezone)::bigint + 5364316800
$$;

comment on function pgonce._wall(text, bigint) is
    'What a clock on the wall of the zone shows at an instant, in seconds since 1800-01-05.';
