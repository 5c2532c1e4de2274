-- sweep, closed: of the records that are due, remove those whose window is over.
--
-- writes      records by due
-- parameters  now, now, how many to look at
-- answers     the removed records

DELETE FROM records
WHERE expires_at <= ?
    AND rowid IN (SELECT rowid FROM records WHERE due <= ? ORDER BY due LIMIT ?)
RETURNING *
