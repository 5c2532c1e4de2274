-- sweep, closed: of the records that are due, remove those whose window is over.
--
-- writes      semel_records by due, semel_records by close
-- parameters  now, now, how many to look at, now, how many to look at
-- answers     the removed records

DELETE FROM semel_records
WHERE expires_at <= ?
    AND rowid IN (
        SELECT rowid FROM (SELECT rowid FROM semel_records WHERE due <= ? ORDER BY due LIMIT ?)
        UNION ALL
        SELECT rowid FROM (SELECT rowid FROM semel_records WHERE closes <= ? ORDER BY closes LIMIT ?)
    )
RETURNING *
