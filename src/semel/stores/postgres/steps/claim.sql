-- claim: make keys ours that nobody has: absent, released, cleared, or their window closed.
--
-- writes      records, events
-- parameters  1 now, or NULL for the server's; 2 whether events are written; 3 the channel for those who wait;
--             then of each command its address; tenant, scope, key; id, tool, version, fingerprint, arguments,
--             terms, conversation, step, principal, job id; token, lease, whether a person has to approve first
-- answers     as in parts/many/answer.sql
--
-- It looks first, so that a replay writes nothing; the conflict clause judges again, on the newest row.
-- A window that never closes (NULL) compares as unknown, so as open. Closed: the key's history is over. Released: its
-- id and counts go on. Cleared: so does the whole first question, because a re-entry carries the first call's
-- arguments whatever the present call says. A record whose first entry is its beginning is as the claim asked for it,
-- except perhaps its id: what was released from before its first entry keeps its own.

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea, tenant text, scope text, key text, id text, tool text, version text, fingerprint bytea,
    arguments bytea, terms text, conversation text, step text, principal text, job_id text, token bytea, lease_us bigint,
    waiting boolean
}, changed AS (
    INSERT INTO records AS r (
        address, tenant, scope, key, id, tool, version, fingerprint, arguments, terms, conversation, step, principal,
        job_id, state, token, fence, attempts, entries, created_at, entered_at, lease_until, settled_at, expires_at,
        outcome, note, by_whom, due
    )
    SELECT
        a.address, a.tenant, a.scope, a.key, a.id, a.tool, a.version, a.fingerprint, a.arguments, a.terms,
        a.conversation, a.step, a.principal, a.job_id,
        CASE WHEN a.waiting THEN 'waiting' ELSE 'pending' END, a.token, greatest(1, clock.now_us),
        CASE WHEN a.waiting THEN 0 ELSE 1 END, CASE WHEN a.waiting THEN 0 ELSE 1 END, clock.now_us,
        CASE WHEN a.waiting THEN NULL ELSE clock.now_us END,
        CASE WHEN a.waiting THEN NULL ELSE clock.now_us + a.lease_us END,
        NULL,
        CASE WHEN a.waiting THEN clock.now_us + a.lease_us END,
        NULL, '', '', clock.now_us + a.lease_us
    FROM asked AS a CROSS JOIN clock LEFT JOIN records AS seen ON seen.address = a.address
    WHERE seen.address IS NULL
        OR seen.expires_at <= clock.now_us
        OR seen.state = 'released'
        OR (seen.state = 'cleared' AND seen.fingerprint = a.fingerprint)
    ORDER BY a.address
    ON CONFLICT (address) DO UPDATE SET
        id = CASE WHEN r.expires_at <= excluded.created_at THEN excluded.id ELSE r.id END,
        tool = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.tool ELSE r.tool END,
        version = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.version ELSE r.version END,
        fingerprint = excluded.fingerprint,
        arguments = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.arguments ELSE r.arguments END,
        terms = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.terms ELSE r.terms END,
        conversation = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.conversation ELSE r.conversation END,
        step = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.step ELSE r.step END,
        principal = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.principal ELSE r.principal END,
        job_id = CASE WHEN r.state <> 'cleared' OR r.expires_at <= excluded.created_at
            THEN excluded.job_id ELSE r.job_id END,
        state = excluded.state,
        token = excluded.token,
        fence = greatest(r.fence + 1, excluded.fence),
        attempts = excluded.attempts
            + CASE WHEN r.expires_at <= excluded.created_at THEN 0 ELSE r.attempts END,
        entries = excluded.entries,
        created_at = CASE WHEN r.expires_at <= excluded.created_at THEN excluded.created_at ELSE r.created_at END,
        entered_at = excluded.entered_at,
        lease_until = excluded.lease_until,
        settled_at = NULL,
        expires_at = excluded.expires_at,
        outcome = NULL,
        note = '',
        by_whom = '',
        due = excluded.due,
        closes = NULL
    WHERE r.expires_at <= excluded.created_at
        OR r.state = 'released'
        OR (r.state = 'cleared' AND r.fingerprint = excluded.fingerprint)
    RETURNING {changed}, CASE WHEN r.state = 'waiting' THEN 'asked' ELSE 'claimed' END AS kind,
        CASE WHEN r.attempts = 1 AND r.entered_at = r.created_at THEN NULL ELSE r END AS whole
), noted AS (
    {event}
)
{answer}
