-- Whether the caller may see a result stored under this role: for the views, which run with the caller's rights and
-- search_path, so this one is a security definer with a path of its own, as a public function is.
-- Locks: nothing. Writes: nothing. Clock: not read.
-- Raises: nothing.
create function pgonce._may_see(role text)
returns boolean
language plpgsql
stable
security definer
set search_path = pg_catalog, pg_temp
as $$
begin
    return pgonce._may_use(_may_see.role);
end
$$;

comment on function pgonce._may_see(text) is 'Whether the caller may see a result stored under this role.';
