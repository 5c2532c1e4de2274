-- The event of each changed record, in the same transaction. A change without a kind (a renewal) has none.
INSERT INTO events (
        at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation,
        step, by_whom, note, times
    )
    SELECT
        clock.now_us, r.tenant, r.scope, r.key, r.id, r.kind, r.state, r.fence, r.tool, r.version,
        CASE WHEN r.outcome IS NULL THEN r.fingerprint ELSE sha256(r.outcome) END, r.expires_at, r.conversation,
        r.step, CASE WHEN r.by_whom = '' THEN r.principal ELSE r.by_whom END, r.note, 1
    FROM changed AS r CROSS JOIN clock
    WHERE $2::boolean AND r.kind IS NOT NULL
    RETURNING seq
