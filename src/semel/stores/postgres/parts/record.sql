-- The columns of a record, in the order of semel.kernel.record.Record.
r.tenant, r.scope, r.key, r.id, r.tool, r.version, r.fingerprint, r.arguments, r.terms, r.conversation, r.step,
    r.principal, r.job_id, r.state, r.token, r.fence, r.attempts, r.entries, r.created_at, r.entered_at,
    r.lease_until, r.settled_at, r.expires_at, r.outcome, r.note, r.by_whom
