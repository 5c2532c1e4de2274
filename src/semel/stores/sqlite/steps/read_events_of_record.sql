-- read_events_of_record: events of one record in the order of their number.
--
-- reads       semel_traces for sealed events, the end of semel_events for the others, which are few while somebody seals
-- parameters  record id, after which number, the same number, record id, tenant or NULL, tenant, how many at most
-- answers     events

SELECT * FROM semel_events
WHERE seq IN (
    SELECT seq FROM semel_traces WHERE record_id = ? AND seq > ?
    UNION ALL
    SELECT seq FROM semel_events
    WHERE seq > max(?, coalesce((SELECT max(last_seq) FROM semel_seals), 0)) AND record_id = ?
)
    AND (? IS NULL OR tenant = ?)
ORDER BY seq
LIMIT ?
