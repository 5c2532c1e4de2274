-- file_anew: the sweeper looks at a record when its lease or window ends, because it would have looked too late.
--
-- writes      semel_records
-- parameters  tenant, scope, key
-- answers     nothing

UPDATE semel_records SET due = coalesce(lease_until, expires_at) WHERE tenant = ? AND scope = ? AND key = ?
