-- list_unsettled: records of a tenant that are waiting, pending or in doubt, newest first.
--
-- reads       semel_records stopped; of semel_records by due those whose `due` is at most :upto
-- parameters  :tenant; :created_at, :id before which; filters, NULL for none: :scope, :key, :tool; :states, as
--             ",state,state,"; :now; :upto, now if no live pending record is asked for; :limit
-- answers     records
--
-- A lapsed record counts as in doubt, swept or not: its `due` is not later than the end of its lease.

SELECT * FROM (
    SELECT * FROM (
        SELECT * FROM semel_records INDEXED BY semel_records_stopped
        WHERE state IN ('waiting', 'in_doubt')
            AND tenant = :tenant
            AND (created_at, id) < (:created_at, :id)
            AND (:scope IS NULL OR scope = :scope)
            AND (:key IS NULL OR key = :key)
            AND (:tool IS NULL OR tool = :tool)
            AND instr(:states, ',' || state || ',') > 0
            AND (expires_at IS NULL OR expires_at > :now)
        ORDER BY created_at DESC, id DESC
        LIMIT :limit
    )
    UNION ALL
    SELECT * FROM semel_records INDEXED BY semel_records_by_due
    WHERE due <= :upto
        AND state = 'pending'
        AND tenant = :tenant
        AND (created_at, id) < (:created_at, :id)
        AND (:scope IS NULL OR scope = :scope)
        AND (:key IS NULL OR key = :key)
        AND (:tool IS NULL OR tool = :tool)
        AND instr(:states, CASE WHEN lease_until <= :now THEN ',in_doubt,' ELSE ',pending,' END) > 0
)
ORDER BY created_at DESC, id DESC
LIMIT :limit
