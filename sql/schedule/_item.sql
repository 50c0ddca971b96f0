-- The values that one item of a cron field names, as bits: "*", a value or a range, and a step.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._item(
    schedule text,
    field    integer,
    item     text
)
returns bigint
language plpgsql
immutable
as $$
declare
    v_min   constant integer := (array[0, 0, 1, 1, 0])[_item.field];
    v_max   constant integer := (array[59, 23, 31, 12, 6])[_item.field];
    v_limit constant integer := (array[59, 23, 31, 12, 7])[_item.field];   -- of values and steps
    v_part  constant text[] := regexp_match(upper(_item.item collate "C"),
        '^([*]|[0-9]{1,2}|[A-Z]{3})(-([0-9]{1,2}|[A-Z]{3}))?(/([0-9]{1,4}))?$');
    v_low   integer;
    v_high  integer;
    v_step  integer := coalesce(v_part[5]::integer, 1);
    v_bits  bigint := 0;
begin
    if v_part[1] = '*' and v_part[3] is null then
        v_low := v_min;
        v_high := v_max;
    else
        v_low := pgonce._value(_item.field, v_part[1]);
        if _item.field = 5 and v_low = 7 and v_part[3] is null then
            v_low := 0;
        end if;
        v_high := case
            when _item.field = 5 and v_part[3] = 'SUN' and v_low > 0 then 7   -- FRI-SUN
            when v_part[3] is not null then pgonce._value(_item.field, v_part[3])
            when v_part[5] is not null then v_max
            else v_low end;
    end if;
    if (v_low between v_min and v_limit and v_high between v_min and v_limit) is not true then
        perform pgonce._refuse_item(_item.schedule, _item.field, _item.item);
    elsif v_step not between 1 and v_limit or length(v_part[5]) > 2 then
        perform pgonce._refuse_schedule(
            _item.schedule,
            'has the step ' || v_part[5] || ' in ' || pgonce._quoted(_item.item),
            case when v_step > v_limit and _item.field < 4
                then 'Write: every ' || v_step || (array[' minutes', ' hours', ' days'])[_item.field] || '.'
                else 'A step is 1 to ' || v_limit || ' here.' end);
    elsif v_low > v_high then
        perform pgonce._refuse_schedule(
            _item.schedule,
            'has the reversed range ' || pgonce._quoted(_item.item),
            'Write ' || case when v_low > v_max then '' else v_part[1] || '-' || v_max || ',' end
                || v_min || '-' || v_part[3] || '.');
    end if;
    for v_value in v_low .. v_high by v_step loop
        v_bits := v_bits | (1::bigint << case when v_value > v_max then 0 else v_value end);
    end loop;
    return v_bits;
end
$$;

comment on function pgonce._item(text, integer, text) is 'The values that one item of a cron field names, as bits.';
