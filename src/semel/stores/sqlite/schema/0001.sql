-- The first schema.
--
-- records   what is known of each key; a record's columns stand in the order of semel.kernel.record.Record
-- events    one line for every transition, written in the transition's own transaction
-- seals     the hash chain over events
-- traces    which events are a record's: of sealed events only, so that a call does not pay for it
-- meta      facts of this store, among them its secret key
--
-- A rowid table with an index beside it, not WITHOUT ROWID: a settlement then rewrites one page of the table and
-- leaves the index alone, and a record may grow to a whole page before it spills over.

CREATE TABLE semel_records (
    tenant       TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    id           TEXT    NOT NULL,
    tool         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    fingerprint  BLOB    NOT NULL,
    arguments    BLOB    NOT NULL,
    terms        TEXT    NOT NULL,
    conversation TEXT    NOT NULL,
    step         TEXT    NOT NULL,
    principal    TEXT    NOT NULL,
    job_id       TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    token        BLOB    NOT NULL,
    fence        INTEGER NOT NULL,
    attempts     INTEGER NOT NULL,
    entries      INTEGER NOT NULL,
    created_at   INTEGER NOT NULL,
    entered_at   INTEGER,
    lease_until  INTEGER,
    settled_at   INTEGER,
    expires_at   INTEGER,
    outcome      BLOB,
    note         TEXT    NOT NULL,
    by_whom      TEXT    NOT NULL,
    -- When the sweeper looks at the record next: never later than its lease or window ends. It may be earlier, and
    -- the sweeper then files it anew, so a settlement need not move it: that saves two pages of every commit.
    due          INTEGER,
    UNIQUE (tenant, scope, key),
    -- A lease belongs to a pending record, and a window never closes on one that is pending or in doubt.
    CHECK (CASE state
        WHEN 'pending'  THEN lease_until IS NOT NULL AND expires_at IS NULL AND settled_at IS NULL
        WHEN 'in_doubt' THEN lease_until IS NULL AND expires_at IS NULL AND settled_at IS NULL
        WHEN 'waiting'  THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'released' THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'cleared'  THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'done'     THEN lease_until IS NULL AND settled_at IS NOT NULL
        WHEN 'failed'   THEN lease_until IS NULL AND settled_at IS NOT NULL
        WHEN 'partial'  THEN lease_until IS NULL AND settled_at IS NOT NULL
        ELSE 0 END),
    CHECK (typeof(fence) = 'integer' AND typeof(token) = 'blob')
);

CREATE INDEX semel_records_by_due ON semel_records (due) WHERE due IS NOT NULL;

-- Newest first, for lists.
CREATE INDEX semel_records_by_age ON semel_records (tenant, created_at, id);

CREATE TABLE semel_events (
    seq          INTEGER PRIMARY KEY,
    at_us        INTEGER NOT NULL,
    tenant       TEXT    NOT NULL,
    scope        TEXT    NOT NULL,
    key          TEXT    NOT NULL,
    record_id    TEXT    NOT NULL,
    kind         TEXT    NOT NULL,
    state        TEXT    NOT NULL,
    fence        INTEGER NOT NULL,
    tool         TEXT    NOT NULL,
    version      TEXT    NOT NULL,
    digest       BLOB    NOT NULL,
    expires_at   INTEGER,
    conversation TEXT    NOT NULL,
    step         TEXT    NOT NULL,
    by_whom      TEXT    NOT NULL,
    note         TEXT    NOT NULL,
    count        INTEGER NOT NULL
);

CREATE TABLE semel_seals (
    number    INTEGER PRIMARY KEY,
    first_seq INTEGER NOT NULL,
    last_seq  INTEGER NOT NULL UNIQUE,
    events    INTEGER NOT NULL,
    hash      BLOB    NOT NULL,
    at_us     INTEGER NOT NULL
);

CREATE TABLE semel_traces (
    record_id TEXT    NOT NULL,
    seq       INTEGER NOT NULL,
    PRIMARY KEY (record_id, seq)
) WITHOUT ROWID;

CREATE TABLE semel_meta (
    name  TEXT PRIMARY KEY,
    value BLOB NOT NULL
) WITHOUT ROWID;
