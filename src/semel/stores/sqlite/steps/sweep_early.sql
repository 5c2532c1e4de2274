-- sweep, early: of the records that are due, file those anew that have a lease or window that still lasts.
--
-- writes      records by due
-- parameters  now, now, how many to look at
-- answers     nothing; the count of changes tells how many there were

UPDATE records SET due = coalesce(lease_until, expires_at)
WHERE (coalesce(lease_until, expires_at) IS NULL OR coalesce(lease_until, expires_at) > ?)
    AND rowid IN (SELECT rowid FROM records WHERE due <= ? ORDER BY due LIMIT ?)
