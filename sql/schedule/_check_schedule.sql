-- Refuses a schedule for what its text as a whole shows, with the hint that fits; _compile looks into the fields.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 22023.
create function pgonce._check_schedule(schedule text)
returns void
language plpgsql
immutable
as $$
declare
    v_text    constant text := upper(left(_check_schedule.schedule, 201) collate "C");
    v_fields  constant integer := cardinality(regexp_split_to_array(v_text, E'[ \t]+'));
    v_refusal constant text[] := case
        when v_text = '' then
            array['is empty', 'Write a schedule: 0 3 * * *, @daily or every 15 minutes.']
        when length(v_text) > 200 then
            array['has ' || length(_check_schedule.schedule) || ' characters', 'At most 200 characters: make two jobs of it.']
        when v_text ~ E'[^ -~\t]' then
            array['has a character that is not printable ASCII',
                  'Use letters, digits and * , - / # between spaces or tabs.']
        when v_text ~ E'^[ \t]|[ \t]$' then
            array['begins or ends with a space', 'Take it away: schedules are compared byte for byte.']
        when v_text ~ '^(CRON_)?TZ=' then
            array['names a time zone', 'Give the zone by itself: timezone => ''Europe/Berlin''.']
        when v_text ~ E'(^|[ \t])#' then
            array['contains a comment', 'Leave the comment out.']
        when v_text ~ E'^EVERY([ \t]|$)' then
            null
        when v_text ~ '^@EVERY' then
            array['is no macro', 'Write it without the @: ' || substring(_check_schedule.schedule from 2)]
        when v_text = '@REBOOT' then
            array['names no time', 'A reboot opens no window: start the command when the system starts.']
        when v_text in ('@YEARLY', '@ANNUALLY', '@MONTHLY', '@WEEKLY', '@DAILY', '@MIDNIGHT', '@HOURLY') then
            null
        when v_text ~ '^@' then
            array['is no macro', 'There are @yearly, @annually, @monthly, @weekly, @daily, @midnight and @hourly.']
        when v_fields in (6, 7) then
            array['has ' || v_fields || ' fields',
                  'Five fields: minute hour day month weekday. No seconds (write every 30 seconds) and no year.']
        when v_fields <> 5 then
            array['has ' || v_fields || case when v_fields = 1 then ' field' else ' fields' end,
                  'Five fields: minute hour day month weekday; or @daily, or every 15 minutes.']
    end;
begin
    if _check_schedule.schedule is null then
        perform pgonce._refuse_null('schedule', 'Give schedule as text: 0 3 * * *, @daily or every 15 minutes.');
    elsif v_refusal is not null then
        perform pgonce._refuse_schedule(_check_schedule.schedule, v_refusal[1], v_refusal[2]);
    end if;
end
$$;

comment on function pgonce._check_schedule(text) is 'Raises 22023 for a schedule whose text shows that it is none.';
