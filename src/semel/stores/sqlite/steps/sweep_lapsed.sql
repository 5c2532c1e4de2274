-- sweep, lapsed: of the records that are due, mark those without a sign of life as in doubt.
--
-- writes      semel_records by due
-- parameters  the note of a lapsed record, now, now, how many to look at
-- answers     the marked records

UPDATE semel_records SET state = 'in_doubt', lease_until = NULL, note = ?, due = NULL
WHERE lease_until <= ?
    AND rowid IN (SELECT rowid FROM semel_records WHERE due <= ? ORDER BY due LIMIT ?)
RETURNING *
