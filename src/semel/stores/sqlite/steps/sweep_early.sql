-- sweep, early: of the records that are due, file those anew that have a lease or window that still lasts.
--
-- writes      semel_records by due, semel_records by close
-- parameters  now, now, how many to look at
-- answers     nothing; the count of changes tells how many there were

UPDATE semel_records SET
    due = CASE WHEN state IN ('waiting', 'pending', 'in_doubt') THEN coalesce(lease_until, expires_at) END,
    closes = CASE WHEN state NOT IN ('waiting', 'pending', 'in_doubt') THEN expires_at END
WHERE (coalesce(lease_until, expires_at) IS NULL OR coalesce(lease_until, expires_at) > ?)
    AND rowid IN (SELECT rowid FROM semel_records WHERE due <= ? ORDER BY due LIMIT ?)
