-- renew: a sign of life of a pending record's owner.
--
-- writes      semel_records
-- parameters  lease_until, tenant, scope, key, token
-- answers     the record as it stands now, nothing if it is not ours or not pending (revive may still apply)

UPDATE semel_records SET lease_until = ?, note = ''
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state = 'pending'
RETURNING *
