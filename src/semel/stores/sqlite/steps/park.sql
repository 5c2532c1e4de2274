-- park: the owner cannot tell whether it happened.
--
-- writes      semel_records
-- parameters  note, tenant, scope, key, token, the note of a lapsed record
-- answers     the record as it stands now, nothing if it is not ours or not alive

UPDATE semel_records SET state = 'in_doubt', lease_until = NULL, note = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ?
    AND (state = 'pending' OR (state = 'in_doubt' AND note = ?))
RETURNING *
