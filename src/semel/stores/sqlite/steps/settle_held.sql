-- settle_held: settle a pending record whose claim this process made, so that nothing has to be read back.
--
-- writes      semel_records
-- parameters  as for settle, then the fence of that claim, and the end of the window or the largest number
-- answers     nothing; the count of changes tells whether it is settled. If not, settle follows in the transaction
--
-- `due` stays where it is, so it must not lie behind the end of the window.

UPDATE semel_records SET
    state = ?,
    lease_until = NULL,
    settled_at = ?,
    expires_at = ?,
    outcome = ?,
    note = '',
    by_whom = ?
WHERE tenant = ? AND scope = ? AND key = ? AND token = ? AND state = 'pending'
    AND fence = ? AND due <= ?
