-- revive: a sign of life of an owner whose record was swept as lapsed, and only so.
--
-- writes      semel_records
-- parameters  lease_until, tenant, scope, key, token, the note of a lapsed record
-- answers     the record as it stands now, nothing if it is not ours or in doubt for another reason

UPDATE semel_records SET state = 'pending', lease_until = ?, note = ''
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state = 'in_doubt' AND note = ?
RETURNING *
