-- Raises ON001: the token holds nothing (any more), or not for this role.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: ON001, always.
create function pgonce._not_held(token bigint)
returns void
language plpgsql
immutable
as $$
begin
    raise exception using
        errcode = 'ON001',
        message = 'token ' || coalesce(_not_held.token::text, 'null') || ' holds nothing',
        detail = 'It was released or finished, somebody else took over, it was granted to another role, or never granted.',
        hint = 'Stop the work and roll it back: somebody else may be doing it. Claim again to go on.';
end
$$;

comment on function pgonce._not_held(bigint) is 'Raises ON001 for a token that holds nothing.';
