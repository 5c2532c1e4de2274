-- list_records: records of a tenant whose window is open, newest first.
--
-- reads       semel_records by age
-- parameters  tenant, before (created_at, id: the largest values for "from the newest"), then each filter twice, NULL
--             for none: scope, key, tool, ",state,state,"; now between the states' two; now, how many at most
-- answers     records
--
-- A lapsed record counts as in doubt, swept or not.

SELECT * FROM semel_records
WHERE tenant = ?
    AND (created_at, id) < (?, ?)
    AND (? IS NULL OR scope = ?)
    AND (? IS NULL OR key = ?)
    AND (? IS NULL OR tool = ?)
    AND (? IS NULL OR instr(?, ',' || CASE WHEN lease_until <= ? THEN 'in_doubt' ELSE state END || ',') > 0)
    AND (expires_at IS NULL OR expires_at > ?)
ORDER BY created_at DESC, id DESC
LIMIT ?
