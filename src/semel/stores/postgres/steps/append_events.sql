-- append_events: write counted events (replays, refusals) in one batch.
--
-- writes      events
-- parameters  one array for each column of an event after its number
-- answers     nothing

INSERT INTO events (
    at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation, step,
    by_whom, note, times
)
SELECT * FROM unnest(
    $1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::text[],
    $10::text[], $11::bytea[], $12::bigint[], $13::text[], $14::text[], $15::text[], $16::text[], $17::bigint[]
)
