-- count_unsettled: how many records are waiting, pending or in doubt, by tenant, tool and state.
--
-- reads       semel_records stopped; of semel_records by due those whose `due` is at most :upto
-- parameters  :tenant or NULL, :states, :now, :upto as for list_unsettled
-- answers     tenant, tool, state, count
--
-- A lapsed record counts as in doubt, swept or not; a question that is over does not count.

SELECT tenant, tool, stands, count(*) FROM (
    SELECT tenant, tool, state AS stands FROM semel_records INDEXED BY semel_records_stopped
    WHERE state IN ('waiting', 'in_doubt')
        AND (expires_at IS NULL OR expires_at > :now)
    UNION ALL
    SELECT tenant, tool, CASE WHEN lease_until <= :now THEN 'in_doubt' ELSE 'pending' END
    FROM semel_records INDEXED BY semel_records_by_due
    WHERE due <= :upto AND state = 'pending'
)
WHERE (:tenant IS NULL OR tenant = :tenant) AND instr(:states, ',' || stands || ',') > 0
GROUP BY tenant, tool, stands
