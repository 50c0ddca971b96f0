-- Refuses a text that cannot be a name, a key or a label: null, empty, padded, too long, or with control characters.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_name(
    argument text,
    value    text,
    bytes    integer
)
returns void
language plpgsql
stable
as $$
declare
    -- Elsewhere the characters from 0x80 to 0x9f are parts of letters, or letters.
    v_control text := case when pg_catalog.getdatabaseencoding() = 'UTF8'
        then E'[\\u0001-\\u001f\\u007f-\\u009f]' else E'[\\u0001-\\u001f\\u007f]' end;
    v_fault text := case
        when _check_name.value is null then 'must not be null'
        when _check_name.value = '' then 'must not be empty'
        when octet_length(_check_name.value) > _check_name.bytes then
            'is too long (' || octet_length(_check_name.value) || ' bytes)'
        when _check_name.value <> btrim(_check_name.value) then 'begins or ends with a space'
        when _check_name.value ~ v_control then 'contains a control character'
    end;
begin
    if v_fault is not null then
        raise exception using
            errcode = '22023',
            message = _check_name.argument || ' ' || v_fault
                || coalesce(': ' || pgonce._quoted(_check_name.value), ''),
            hint = 'Give ' || _check_name.argument || ' as 1 to ' || _check_name.bytes
                || ' bytes of text without control characters and without spaces around it.';
    end if;
end
$$;

comment on function pgonce._check_name(text, text, integer) is 'Raises 22023 unless value can be a name, a key or a label.';
