-- Refuses a ttl above max_hold; null on either side passes.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_max_hold(
    ttl      interval,
    max_hold interval
)
returns void
language plpgsql
immutable
as $$
begin
    if _check_max_hold.ttl > _check_max_hold.max_hold then
        raise exception using
            errcode = '22023',
            message = 'ttl ' || _check_max_hold.ttl || ' is above max_hold ' || _check_max_hold.max_hold,
            hint = 'Give a ttl of at most max_hold: no grant can be held longer than that.';
    end if;
end
$$;

comment on function pgonce._check_max_hold(interval, interval) is 'Raises 22023 for a ttl above max_hold.';
