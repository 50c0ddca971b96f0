-- A new token, greater than the floor, below 2^53, made from the clock so that it keeps growing where a counter would
-- start again (a pruned row, a failover to a standby that lagged, a restored backup): milliseconds since 2025-01-01
-- (or one more than the floor's) times 4096, plus a sequence that tells apart the tokens of one millisecond. (The Python
-- client takes from it when a grant was made, to notice a ttl that was cut.)
-- Locks: nothing. Writes: the sequence token_seq. Clock: read.
-- Raises: nothing.
create function pgonce._next_token(floor bigint)
returns bigint
language sql
volatile
as $$
    select greatest(pg_catalog.floor((extract(epoch from pgonce.clock()) - 1735689600) * 1000)::bigint,
                    coalesce(_next_token.floor, 0) / 4096 + 1) * 4096
        + pg_catalog.mod(pg_catalog.nextval('pgonce.token_seq'), 4096)
$$;

comment on function pgonce._next_token(bigint) is 'A new token, greater than the one given and than every older one by the clock.';
