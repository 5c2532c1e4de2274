-- list_all_records: records of all tenants whose window is open, newest first.
--
-- reads       semel_records, all of them: it is for a person's rare look
-- parameters  as for list_records, without the tenant
-- answers     records

SELECT * FROM semel_records
WHERE (created_at, id) < (?, ?)
    AND (? IS NULL OR scope = ?)
    AND (? IS NULL OR key = ?)
    AND (? IS NULL OR tool = ?)
    AND (? IS NULL OR instr(?, ',' || CASE WHEN lease_until <= ? THEN 'in_doubt' ELSE state END || ',') > 0)
    AND (expires_at IS NULL OR expires_at > ?)
ORDER BY created_at DESC, id DESC
LIMIT ?
