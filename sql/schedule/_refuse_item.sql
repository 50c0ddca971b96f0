-- Refuses one item of a cron expression, with the hint that fits.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023, always.
create function pgonce._refuse_item(
    schedule text,
    field    integer,
    item     text
)
returns void
language plpgsql
immutable
as $$
declare
    v_field constant text :=
        (array['minute', 'hour', 'day of the month', 'month', 'day of the week'])[_refuse_item.field];
    v_range constant text :=
        (array['0 to 59', '0 to 23', '1 to 31', '1 to 12 or JAN to DEC', '0 to 7 or SUN to SAT (0 and 7 are Sunday)'])
        [_refuse_item.field];
    v_text  constant text := upper(_refuse_item.item collate "C");
    v_name  constant text := substring(v_text from '([A-Z]{3})[A-Z]');
begin
    perform pgonce._refuse_schedule(
        _refuse_item.schedule,
        'has ' || case when v_text = '' then 'an empty item' else 'the item ' || pgonce._quoted(_refuse_item.item) end
            || ' in the ' || v_field,
        case
            when v_text = '' then 'Put a value between two commas, and none at either end: 1,15.'
            when v_text ~ '[?]' then 'Write * where other dialects write ?.'
            when v_text ~ '~|^[HR]($|[/(])' then
                'H, R and ~ mean another time on each host, but a window has one start: choose a value, such as 17.'
            when v_text ~ '(^|[-/])[+-]' then 'Values have no sign: ' || v_range || '.'
            when pgonce._value(_refuse_item.field, v_name) is not null then
                'Names have three letters: ' || v_name || '.'
            when _refuse_item.field = 3 and v_text ~ '[LW]' then
                'Around L and W the day of the month knows: L, L-1 to L-30, LW, 1W to 31W.'
            when _refuse_item.field = 5 and v_text ~ '[L#]' then
                'The last Friday of the month is 5L or FRIL, the first one 5#1 or FRI#1 (1 to 5).'
            when v_text ~ 'L|W$' then 'L and W belong in the day of the month; 5L (last Friday) in the day of the week.'
            when v_text ~ '#' then '# belongs in the day of the week: 5#1 is the first Friday.'
            else 'The ' || v_field || ' is ' || v_range || ', alone or as *, */2, 1-5, 1-5/2 or 1,3.'
        end);
end
$$;

comment on function pgonce._refuse_item(text, integer, text) is 'Raises 22023 for one item of a cron expression.';
