-- unsealed_events: the next events that no seal covers.
--
-- reads       events
-- parameters  1 the last sealed number, 2 the last number that may be sealed, 3 how many at most
-- answers     events

SELECT e.seq, e.at_us, e.tenant, e.scope, e.key, e.record_id, e.kind, e.state, e.fence, e.tool, e.version, e.digest,
    e.expires_at, e.conversation, e.step, e.by_whom, e.note, e.times
FROM events AS e
WHERE e.seq > $1::bigint AND e.seq <= $2::bigint
ORDER BY e.seq
LIMIT $3::bigint
