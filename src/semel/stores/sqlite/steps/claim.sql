-- claim: make the key ours if nobody has it: absent, released, cleared, or its window closed.
-- claim_new has usually done it before.
--
-- writes      records
-- parameters  the record as it will stand if the key is absent, in the order of its columns;
--             created_at is now, fence the smallest that now allows, attempts 1 (0 while waiting for a person),
--             due the end of the lease or of the question
-- answers     the record as it stands now if it became ours, nothing if somebody has it
--
-- excluded.created_at is the store's time. A window that never closes (NULL) compares as unknown, so as open.
-- Closed: the key's history is over. Released: its id and counts go on. Cleared: so does the whole first question,
-- because a re-entry carries the first call's arguments whatever the present call says.

INSERT INTO records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT (tenant, scope, key) DO UPDATE SET
    id = CASE WHEN records.expires_at <= excluded.created_at THEN excluded.id ELSE records.id END,
    tool = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.tool ELSE records.tool END,
    version = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.version ELSE records.version END,
    fingerprint = excluded.fingerprint,
    arguments = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.arguments ELSE records.arguments END,
    terms = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.terms ELSE records.terms END,
    conversation = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.conversation ELSE records.conversation END,
    step = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.step ELSE records.step END,
    principal = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.principal ELSE records.principal END,
    job_id = CASE WHEN records.state <> 'cleared' OR records.expires_at <= excluded.created_at
        THEN excluded.job_id ELSE records.job_id END,
    state = excluded.state,
    token = excluded.token,
    fence = max(records.fence + 1, excluded.fence),
    attempts = excluded.attempts
        + CASE WHEN records.expires_at <= excluded.created_at THEN 0 ELSE records.attempts END,
    entries = excluded.entries,
    created_at = CASE WHEN records.expires_at <= excluded.created_at
        THEN excluded.created_at ELSE records.created_at END,
    entered_at = excluded.entered_at,
    lease_until = excluded.lease_until,
    settled_at = NULL,
    expires_at = excluded.expires_at,
    outcome = NULL,
    note = '',
    by_whom = '',
    due = excluded.due,
    closes = NULL
WHERE records.expires_at <= excluded.created_at
    OR records.state = 'released'
    OR (records.state = 'cleared' AND records.fingerprint = excluded.fingerprint)
RETURNING *
