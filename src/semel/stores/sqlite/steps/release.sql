-- release: nothing happened in this entry: free the key, unless an earlier entry is still in doubt.
--
-- writes      semel_records
-- parameters  expires_at, the note for a later entry, tenant, scope, key, token, the same note
-- answers     the record as it stands now, nothing if it is not ours, settled, or was released before

UPDATE semel_records SET
    state = CASE WHEN entries > 1 THEN 'in_doubt' ELSE 'released' END,
    entered_at = CASE WHEN entries > 1 THEN entered_at END,
    lease_until = NULL,
    expires_at = CASE WHEN entries > 1 THEN expires_at ELSE ? END,
    note = CASE WHEN entries > 1 THEN ? ELSE '' END,
    entries = CASE WHEN entries > 1 THEN entries ELSE 0 END
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state IN ('waiting', 'pending', 'in_doubt')
    AND (entries <= 1 OR note <> ?)
RETURNING *
