-- The window of a schedule that contains an instant: from the last fire time not after it to the next one.
-- Locks: nothing. Writes: nothing. Clock: read when no instant is given.
-- Raises: 22023.
create function pgonce.window_at(
    schedule         text,
    timezone         text default null,
    at               timestamptz default null,
    out window_start timestamptz,
    out window_end   timestamptz
)
language plpgsql
volatile
security definer
set search_path = pg_catalog, pg_temp
as $$
declare
    v_compiled constant bigint[] := pgonce._compile(window_at.schedule collate "C");
    v_timezone constant text collate "C" := coalesce(window_at.timezone, 'UTC');
    v_at       timestamptz := window_at.at;
    v_window   record;
begin
    perform pgonce._check_zone(v_timezone);
    if v_at is null then
        v_at := pgonce.clock();
    end if;
    perform pgonce._check_instant('at', v_at);
    v_window := pgonce._window(v_compiled, v_timezone, v_at);
    window_start := v_window.window_start;
    window_end := v_window.window_end;
end
$$;

comment on function pgonce.window_at(text, text, timestamptz) is
    'The window of a schedule that contains an instant (default: now); its end is the next fire time.';
