-- Refuses to claim or to hold on a read-only server: a pool that points to a replica must not look like a host that always loses.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: 25006.
create function pgonce._require_writable()
returns void
language plpgsql
stable
as $$
begin
    if current_setting('transaction_read_only')::boolean then
        raise exception using
            errcode = '25006',
            message = 'nothing can be claimed, held or finished in a read-only transaction',
            detail = case when pg_is_in_recovery() then 'This server is a standby.'
                          else 'transaction_read_only is on.' end,
            hint = 'Connect to the primary (libpq: target_session_attrs=read-write) in a read-write transaction.';
    end if;
end
$$;

comment on function pgonce._require_writable() is 'Raises 25006 where nothing can be claimed, held or finished.';
