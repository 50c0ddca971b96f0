-- The new expires_at of something that is held and locked: the whole ttl from now, and never less than it had.
-- Locks: nothing. Writes: nothing. Clock: read; the caller has locked the row.
-- Raises: 22023 (an explicit ttl above max_hold), ON003 (max_hold would be passed).
create function pgonce._renewed(
    ttl        interval,
    granted    interval,
    since      timestamptz,
    max_until  timestamptz,
    expires_at timestamptz
)
returns timestamptz
language plpgsql
volatile
as $$
declare
    v_until timestamptz;
begin
    perform pgonce._check_max_hold(_renewed.ttl, _renewed.max_until - _renewed.since);
    v_until := pgonce.clock() + coalesce(_renewed.ttl, _renewed.granted);
    if v_until > _renewed.max_until then
        raise exception using
            errcode = 'ON003',
            message = 'max_hold is reached: it cannot be renewed past ' || _renewed.max_until,
            detail = 'It is held until ' || _renewed.expires_at || '.',
            hint = 'Finish before that; or ask for a greater max_hold next time.';
    end if;
    return greatest(_renewed.expires_at, v_until);
end
$$;

comment on function pgonce._renewed(interval, interval, timestamptz, timestamptz, timestamptz) is
    'The new expires_at of something held; raises ON003 when max_hold would be passed.';
