-- The one text that stands for a JSON value, whatever its key order, spaces and number format: keys in byte order, no
-- spaces, numbers without trailing zeros (1 = 1.0 = 1e0).
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023 (nested deeper than 200 levels: the stack that PostgreSQL allows by default is enough for some 500).
create function pgonce._canonical(
    payload jsonb,
    level   integer     -- how many arrays and objects it is in
)
returns text
language plpgsql
immutable
as $$
begin
    if _canonical.level > 200 then
        raise exception using
            errcode = '22023',
            message = 'payload is nested deeper than 200 levels',
            hint = 'Give as payload only the part of the message that tells it from others, or use a key of your own.';
    end if;
    case jsonb_typeof(_canonical.payload)
        when 'object' then
            return '{' || coalesce((
                select string_agg(to_json(e.key)::text || ':' || pgonce._canonical(e.value, _canonical.level + 1), ',' order by e.key collate "C")
                from jsonb_each(_canonical.payload) e), '') || '}';
        when 'array' then
            return '[' || coalesce((
                select string_agg(pgonce._canonical(e.value, _canonical.level + 1), ',' order by e.number)
                from jsonb_array_elements(_canonical.payload) with ordinality e (value, number)), '') || ']';
        when 'number' then
            return trim_scale((_canonical.payload #>> '{}')::numeric)::text;
        else
            return _canonical.payload::text;
    end case;
end
$$;

comment on function pgonce._canonical(jsonb, integer) is 'The one text that stands for a JSON value.';
