-- amend: a person gives or corrects the result of what a person resolved as happened.
--
-- writes      semel_records
-- parameters  the new token, outcome, by whom, tenant, scope, key, the token seen, now
-- answers     the record as it stands now, nothing if it is not the one we saw, not a person's word, or closed

UPDATE semel_records SET
    token = ?,
    outcome = ?,
    note = 'amended',
    by_whom = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state = 'done'
    AND (note = 'amended' OR (note = 'resolved' AND by_whom <> 'probe'))
    AND (expires_at IS NULL OR expires_at > ?)
RETURNING *
