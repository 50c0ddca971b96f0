-- An idempotency key made from the content: the same 64 hex digits for the same payload in every client.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce.key_of(
    payload jsonb,
    version text default null
)
returns text
language plpgsql
immutable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    if key_of.payload is null then
        perform pgonce._refuse_null('payload', 'Give the message as jsonb; a JSON null is ''null''::jsonb.');
    end if;
    if key_of.version is not null then
        perform pgonce._check_name('version', key_of.version collate "C", 200);
    end if;
    return encode(sha256(convert_to(
        coalesce(to_json(key_of.version)::text, 'null') || ' ' || pgonce._canonical(key_of.payload, 0), 'UTF8')), 'hex');
end
$$;

comment on function pgonce.key_of(jsonb, text) is
    'A key made from the content: the same for the same payload whatever its key order, spaces and number format.';
