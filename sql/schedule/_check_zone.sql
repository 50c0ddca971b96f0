-- Refuses a time zone that is not an exact name of a place: PostgreSQL itself would take CET, UTC+3 and even
-- Europe/Berlin2 (for an offset of two hours). The view it asks is slow: once a job and zone.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_zone(timezone text)
returns void
language plpgsql
stable
as $$
begin
    if _check_zone.timezone = 'UTC' then
        return;
    end if;
    if strpos(_check_zone.timezone, '/') > 0 and left(_check_zone.timezone, 6) not in ('posix/', 'right/')
            and exists (select from pg_timezone_names z where z.name = _check_zone.timezone) then
        return;
    end if;
    raise exception using
        errcode = '22023',
        message = 'timezone ' || coalesce(pgonce._quoted(_check_zone.timezone), 'null')
            || ' is not a full name of pg_timezone_names',
        hint = 'Write a name with a slash as it stands there, such as Europe/Berlin, or UTC.';
end
$$;

comment on function pgonce._check_zone(text) is
    'Raises 22023 unless timezone is UTC or a full name of pg_timezone_names.';
