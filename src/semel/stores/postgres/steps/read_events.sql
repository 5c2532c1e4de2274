-- read_events: events in the order of their number, of one tenant or of all.
--
-- reads       events
-- parameters  1 after which number, 2 tenant or NULL, 3 how many at most
-- answers     events

SELECT e.seq, e.at_us, e.tenant, e.scope, e.key, e.record_id, e.kind, e.state, e.fence, e.tool, e.version, e.digest,
    e.expires_at, e.conversation, e.step, e.by_whom, e.note, e.times
FROM events AS e
WHERE e.seq > $1::bigint AND ($2::text IS NULL OR e.tenant = $2::text)
ORDER BY e.seq
LIMIT $3::bigint
