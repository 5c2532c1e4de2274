-- file_anew: the sweeper looks at a record when its lease or window ends, because it would have looked too late.
--
-- writes      records
-- parameters  tenant, scope, key
-- answers     nothing

UPDATE records SET due = coalesce(lease_until, expires_at) WHERE tenant = ? AND scope = ? AND key = ?
