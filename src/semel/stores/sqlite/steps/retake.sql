-- retake: enter again, or for the first time after an approval, in place of the attempt that we saw.
--
-- writes      semel_records
-- parameters  token, now, now, lease_until, tenant, scope, key, the token seen, now, now,
--             the time after which the first entry must have been
-- answers     the record as it stands now, nothing if it is not the attempt we saw, alive, or entered too long ago

UPDATE semel_records SET
    state = 'pending',
    token = ?,
    fence = max(fence + 1, ?),
    attempts = attempts + 1,
    entries = entries + 1,
    entered_at = coalesce(entered_at, ?),
    lease_until = ?,
    expires_at = NULL,
    note = '',
    by_whom = ''
WHERE tenant = ? AND scope = ? AND key = ? AND token = ?
    AND (state IN ('waiting', 'in_doubt') OR lease_until <= ?)
    AND coalesce(entered_at, ?) > ?
RETURNING *
