-- The windows of a schedule that start in [since, until), oldest first.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce.windows(
    schedule text,
    timezone text default null,
    since    timestamptz default null,
    until    timestamptz default null
)
returns table (
    window_start timestamptz,
    window_end   timestamptz
)
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_compiled constant bigint[] := pgonce._compile(windows.schedule collate "C");
    v_timezone constant text collate "C" := coalesce(windows.timezone, 'UTC');
    v_window   record;
begin
    perform pgonce._check_zone(v_timezone);
    perform pgonce._check_instant('since', windows.since);
    perform pgonce._check_instant('until', windows.until);
    if windows.since > windows.until then
        raise exception using
            errcode = '22023',
            message = 'until ' || windows.until || ' is before since ' || windows.since,
            hint = 'Give since and until in this order; the windows returned start in between.';
    end if;
    v_window := pgonce._window(v_compiled, v_timezone, windows.since);
    if v_window.window_start < windows.since then
        v_window := pgonce._window(v_compiled, v_timezone, v_window.window_end);
    end if;
    while v_window.window_start < windows.until loop
        window_start := v_window.window_start;
        window_end := v_window.window_end;
        return next;
        v_window := pgonce._window(v_compiled, v_timezone, v_window.window_end);
    end loop;
end
$$;

comment on function pgonce.windows(text, text, timestamptz, timestamptz) is
    'The windows of a schedule that start in [since, until), oldest first.';
