-- The number of the lowest bit that is set (0 is the last one). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._lowest(bits bigint)
returns integer
language sql
immutable
as $$
    select bit_count(((_lowest.bits & - _lowest.bits) - 1)::bit(64))::integer
$$;

comment on function pgonce._lowest(bigint) is 'The number of the lowest bit that is set.';
