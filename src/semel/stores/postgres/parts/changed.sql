-- What the event and the answer need of a changed record: without its arguments and terms, which may be long.
r.address, r.tenant, r.scope, r.key, r.id, r.tool, r.version, r.fingerprint, r.conversation, r.step, r.principal,
    r.state, r.fence, r.expires_at, r.outcome, r.note, r.by_whom, r.waited
