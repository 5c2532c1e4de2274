-- resolve, happened: a person or a probe says that the attempt we saw took effect.
--
-- writes      semel_records
-- parameters  the new token, now, expires_at, outcome, by whom, tenant, scope, key, the token seen, now
-- answers     the record as it stands now, nothing if it is not the attempt we saw or not in doubt

UPDATE semel_records SET
    state = 'done',
    token = ?,
    lease_until = NULL,
    settled_at = ?,
    expires_at = ?,
    outcome = ?,
    note = 'resolved',
    by_whom = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND (state = 'in_doubt' OR lease_until <= ?)
RETURNING *
