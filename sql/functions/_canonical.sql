-- The one text that stands for a JSON value, whatever its key order, spaces and number format: keys in byte order, no
-- spaces, numbers without trailing zeros (1 = 1.0 = 1e0).
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._canonical(payload jsonb)
returns text
language plpgsql
immutable
as $$
begin
    case jsonb_typeof(_canonical.payload)
        when 'object' then
            return '{' || coalesce((
                select string_agg(to_json(e.key)::text || ':' || pgonce._canonical(e.value), ',' order by e.key collate "C")
                from jsonb_each(_canonical.payload) e), '') || '}';
        when 'array' then
            return '[' || coalesce((
                select string_agg(pgonce._canonical(e.value), ',' order by e.number)
                from jsonb_array_elements(_canonical.payload) with ordinality e (value, number)), '') || ']';
        when 'number' then
            return trim_scale((_canonical.payload #>> '{}')::numeric)::text;
        else
            return _canonical.payload::text;
    end case;
end
$$;

comment on function pgonce._canonical(jsonb) is 'The one text that stands for a JSON value.';
