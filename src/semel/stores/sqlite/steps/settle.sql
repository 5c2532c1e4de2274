-- settle: record how it ended, for as long as the window.
--
-- writes      semel_records
-- parameters  state, now, expires_at, outcome, by whom, tenant, scope, key, token
-- answers     the record as it stands now, nothing if it is not ours or settled already
--
-- `due` stays, as in every step but claim: file_anew follows where it would be too late.

UPDATE semel_records SET
    state = ?,
    lease_until = NULL,
    settled_at = ?,
    expires_at = ?,
    outcome = ?,
    note = '',
    by_whom = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state IN ('waiting', 'pending', 'in_doubt')
RETURNING *
