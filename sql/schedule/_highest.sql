-- The number of the highest bit that is set (0 is the last one). Plain SQL, so that it is inlined.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._highest(bits bigint)
returns integer
language sql
immutable
as $$
    select 64 - position(B'1' in _highest.bits::bit(64))
$$;

comment on function pgonce._highest(bigint) is 'The number of the highest bit that is set.';
