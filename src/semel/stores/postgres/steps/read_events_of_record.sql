-- read_events_of_record: events of one record in the order of their number.
--
-- reads       traces for sealed events, the end of events for the others, which are few while somebody seals
-- parameters  1 after which number, 2 tenant or NULL, 3 how many at most, 4 record id
-- answers     events

SELECT e.seq, e.at_us, e.tenant, e.scope, e.key, e.record_id, e.kind, e.state, e.fence, e.tool, e.version, e.digest,
    e.expires_at, e.conversation, e.step, e.by_whom, e.note, e.times
FROM (
    SELECT t.seq FROM traces AS t
    WHERE t.record = hashtextextended($4::text COLLATE "C", 0) AND t.seq > $1::bigint
    UNION ALL
    SELECT late.seq FROM events AS late
    WHERE late.seq > greatest($1::bigint, (SELECT max(last_seq) FROM seals)) AND late.record_id = $4::text
) AS found JOIN events AS e ON e.seq = found.seq
WHERE e.record_id = $4::text AND ($2::text IS NULL OR e.tenant = $2::text)
ORDER BY e.seq
LIMIT $3::bigint
