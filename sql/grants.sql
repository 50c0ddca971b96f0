-- Who may do what. Everything is the owner's and its members', but for what grant_worker (the functions that claim, renew
-- and finish) and grant_reader (the views) give to a role. Nothing is left to PUBLIC, nor to whoever the installer's
-- default privileges name.

do $$
declare
    v_role text;
begin
    perform pgonce._revoke('public');
    for v_role in
        select distinct pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(granted.grantee))
        from (
            select n.nspacl as acl, n.nspowner as owner from pg_catalog.pg_namespace n where n.nspname = 'pgonce'
            union all
            select c.relacl, c.relowner from pg_catalog.pg_class c where c.relnamespace = 'pgonce'::regnamespace
            union all
            select p.proacl, p.proowner from pg_catalog.pg_proc p where p.pronamespace = 'pgonce'::regnamespace
            union all
            select t.typacl, t.typowner from pg_catalog.pg_type t where t.typnamespace = 'pgonce'::regnamespace
        ) object, lateral pg_catalog.aclexplode(object.acl) granted
        where granted.grantee not in (0, object.owner)
    loop
        perform pgonce._revoke(v_role);
    end loop;
end
$$;
