-- list_all_records: records of all tenants whose window is open, newest first.
--
-- reads       records, all of them: it is for a person's rare look
-- parameters  as for list_records; the tenant is NULL
-- answers     records

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT {record}
FROM records AS r
WHERE $2::text IS NULL
    AND (r.created_at < $3::bigint OR (r.created_at = $3::bigint AND r.id < $4::text))
    AND ($5::text IS NULL OR r.scope = $5::text)
    AND ($6::text IS NULL OR r.key = $6::text)
    AND ($7::text IS NULL OR r.tool = $7::text)
    AND (
        $8::text[] IS NULL
        OR CASE WHEN r.lease_until <= (SELECT now_us FROM clock) THEN 'in_doubt' ELSE r.state END = ANY ($8::text[])
    )
    AND (r.expires_at IS NULL OR r.expires_at > (SELECT now_us FROM clock))
ORDER BY r.created_at DESC, r.id DESC
LIMIT $9::bigint
