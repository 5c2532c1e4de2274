-- read_events_of_record: events of one record in the order of their number.
--
-- reads       traces for sealed events, the end of events for the others, which are few while somebody seals
-- parameters  record id, after which number, the same number, record id, tenant or NULL, tenant, how many at most
-- answers     events

SELECT * FROM events
WHERE seq IN (
    SELECT seq FROM traces WHERE record_id = ? AND seq > ?
    UNION ALL
    SELECT seq FROM events
    WHERE seq > max(?, coalesce((SELECT max(last_seq) FROM seals), 0)) AND record_id = ?
)
    AND (? IS NULL OR tenant = ?)
ORDER BY seq
LIMIT ?
