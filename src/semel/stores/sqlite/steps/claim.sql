-- claim: make the key ours if nobody has it: absent, released, cleared, or its window closed.
-- claim_new has usually done it before.
--
-- writes      semel_records
-- parameters  the record as it will stand if the key is absent, in the order of its columns;
--             created_at is now, fence the smallest that now allows, attempts 1 (0 while waiting for a person),
--             due the end of the lease or of the question
-- answers     the record as it stands now if it became ours, nothing if somebody has it
--
-- excluded.created_at is the store's time. A window that never closes (NULL) compares as unknown, so as open.
-- Closed: the key's history is over. Released: its id and counts go on. Cleared: so does the whole first question,
-- because a re-entry carries the first call's arguments whatever the present call says.

INSERT INTO semel_records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT (tenant, scope, key) DO UPDATE SET
    id = CASE WHEN semel_records.expires_at <= excluded.created_at THEN excluded.id ELSE semel_records.id END,
    tool = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.tool ELSE semel_records.tool END,
    version = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.version ELSE semel_records.version END,
    fingerprint = excluded.fingerprint,
    arguments = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.arguments ELSE semel_records.arguments END,
    terms = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.terms ELSE semel_records.terms END,
    conversation = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.conversation ELSE semel_records.conversation END,
    step = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.step ELSE semel_records.step END,
    principal = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.principal ELSE semel_records.principal END,
    job_id = CASE WHEN semel_records.state <> 'cleared' OR semel_records.expires_at <= excluded.created_at
        THEN excluded.job_id ELSE semel_records.job_id END,
    state = excluded.state,
    token = excluded.token,
    fence = max(semel_records.fence + 1, excluded.fence),
    attempts = excluded.attempts
        + CASE WHEN semel_records.expires_at <= excluded.created_at THEN 0 ELSE semel_records.attempts END,
    entries = excluded.entries,
    created_at = CASE WHEN semel_records.expires_at <= excluded.created_at
        THEN excluded.created_at ELSE semel_records.created_at END,
    entered_at = excluded.entered_at,
    lease_until = excluded.lease_until,
    settled_at = NULL,
    expires_at = excluded.expires_at,
    outcome = NULL,
    note = '',
    by_whom = '',
    due = excluded.due,
    closes = NULL
WHERE semel_records.expires_at <= excluded.created_at
    OR semel_records.state = 'released'
    OR (semel_records.state = 'cleared' AND semel_records.fingerprint = excluded.fingerprint)
RETURNING *
