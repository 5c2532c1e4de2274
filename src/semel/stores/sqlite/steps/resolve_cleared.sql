-- resolve, did not happen: a person or a probe says that the attempt we saw took no effect.
--
-- writes      semel_records
-- parameters  the new token, expires_at, by whom, tenant, scope, key, the token seen, now
-- answers     the record as it stands now, nothing if it is not the attempt we saw or not in doubt

UPDATE semel_records SET
    state = 'cleared',
    token = ?,
    entries = 0,
    entered_at = NULL,
    lease_until = NULL,
    expires_at = ?,
    note = 'resolved',
    by_whom = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND (state = 'in_doubt' OR lease_until <= ?)
RETURNING *
