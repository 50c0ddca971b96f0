-- What every yes does to its transaction: its commit waits for the flush (and for the standby, where one is
-- synchronous), and idling in it ends with the ttl. Nothing is lowered that is stricter already. The settings are made
-- with set_config in the body: a "set" clause on a function has no effect at commit.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._secure(ttl interval)
returns void
language plpgsql
volatile
as $$
declare
    v_idle text := current_setting('idle_in_transaction_session_timeout');
    v_ttl  interval := least(_secure.ttl, interval '24 days');  -- the setting's greatest value is 2^31 - 1 ms
begin
    if current_setting('synchronous_commit') in ('off', 'local', 'remote_write') then
        perform set_config('synchronous_commit', 'on', true);
    end if;
    if v_idle = '0' or v_idle::interval > v_ttl then
        perform set_config('idle_in_transaction_session_timeout',
                           floor(extract(epoch from v_ttl) * 1000)::text, true);
    end if;
end
$$;

comment on function pgonce._secure(interval) is
    'Makes the transaction''s commit durable and lets it idle no longer than the ttl.';
