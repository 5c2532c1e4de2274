-- The first schema.
-- works with schema 1 and newer: a later one adds, and takes away only what no running Semel uses any more
--
-- records   what is known of each key, under the SHA-256 of its address: addresses may be longer than an index takes
-- events    one line for every transition, written in the transition's own transaction
-- seals     the hash chain over events
-- traces    which events are a record's: of sealed events only, so that a call does not pay for it
-- meta      facts of this store: its id, its secret key
--
-- Texts are escaped where they hold what PostgreSQL refuses (packing.py), and compare byte by byte. Times are
-- microseconds by the server's clock.

CREATE TABLE records (
    address      bytea   PRIMARY KEY,
    tenant       text    COLLATE "C" NOT NULL,
    scope        text    COLLATE "C" NOT NULL,
    key          text    COLLATE "C" NOT NULL,
    id           text    COLLATE "C" NOT NULL,
    tool         text    COLLATE "C" NOT NULL,
    version      text    COLLATE "C" NOT NULL,
    fingerprint  bytea   NOT NULL,
    arguments    bytea   NOT NULL,
    terms        text    COLLATE "C" NOT NULL,
    conversation text    COLLATE "C" NOT NULL,
    step         text    COLLATE "C" NOT NULL,
    principal    text    COLLATE "C" NOT NULL,
    job_id       text    COLLATE "C" NOT NULL,
    state        text    COLLATE "C" NOT NULL,
    token        bytea   NOT NULL,
    fence        bigint  NOT NULL,
    attempts     bigint  NOT NULL,
    entries      bigint  NOT NULL,
    created_at   bigint  NOT NULL,
    entered_at   bigint,
    lease_until  bigint,
    settled_at   bigint,
    expires_at   bigint,
    outcome      bytea,
    note         text    COLLATE "C" NOT NULL,
    by_whom      text    COLLATE "C" NOT NULL,
    -- When the sweeper looks at the record next: never later than its lease or window ends. It may be earlier, and
    -- the sweeper then files it anew: so a settlement moves no index entry.
    due          bigint,
    -- Somebody waits for the next change. On the record itself, so that whoever changes it cannot overlook it.
    waited       boolean NOT NULL DEFAULT false,
    -- A lease belongs to a pending record, and a window never closes on one that is pending or in doubt.
    CONSTRAINT times_fit_the_state CHECK (CASE state
        WHEN 'pending'  THEN lease_until IS NOT NULL AND expires_at IS NULL AND settled_at IS NULL
        WHEN 'in_doubt' THEN lease_until IS NULL AND expires_at IS NULL AND settled_at IS NULL
        WHEN 'waiting'  THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'released' THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'cleared'  THEN lease_until IS NULL AND settled_at IS NULL
        WHEN 'done'     THEN lease_until IS NULL AND settled_at IS NOT NULL
        WHEN 'failed'   THEN lease_until IS NULL AND settled_at IS NOT NULL
        WHEN 'partial'  THEN lease_until IS NULL AND settled_at IS NOT NULL
        ELSE false END)
-- Space for the settlement beside the claim: a heap-only update, which touches no index. The table is swept of dead
-- rows early, because every record is updated once and deleted once.
) WITH (fillfactor = 60, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

CREATE INDEX records_by_due ON records (due) WHERE due IS NOT NULL;

-- Newest first, for lists; hashes, because a tenant or an id may be longer than an index takes.
CREATE INDEX records_by_age ON records (hashtextextended(tenant, 0), created_at);
CREATE INDEX records_by_id ON records (hashtextextended(id, 0));

-- The transaction's number comes first, so that it is taken before the event's: see horizon.sql.
CREATE TABLE events (
    transaction  xid8    NOT NULL DEFAULT pg_current_xact_id(),
    seq          bigint  GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at_us        bigint  NOT NULL,
    tenant       text    COLLATE "C" NOT NULL,
    scope        text    COLLATE "C" NOT NULL,
    key          text    COLLATE "C" NOT NULL,
    record_id    text    COLLATE "C" NOT NULL,
    kind         text    COLLATE "C" NOT NULL,
    state        text    COLLATE "C" NOT NULL,
    fence        bigint  NOT NULL,
    tool         text    COLLATE "C" NOT NULL,
    version      text    COLLATE "C" NOT NULL,
    digest       bytea   NOT NULL,
    expires_at   bigint,
    conversation text    COLLATE "C" NOT NULL,
    step         text    COLLATE "C" NOT NULL,
    by_whom      text    COLLATE "C" NOT NULL,
    note         text    COLLATE "C" NOT NULL,
    times        bigint  NOT NULL
);

CREATE TABLE seals (
    number    bigint PRIMARY KEY,
    first_seq bigint NOT NULL,
    last_seq  bigint NOT NULL UNIQUE,
    events    bigint NOT NULL,
    hash      bytea  NOT NULL,
    at_us     bigint NOT NULL
);

-- record: the hash of the record's id.
CREATE TABLE traces (
    record bigint NOT NULL,
    seq    bigint NOT NULL,
    PRIMARY KEY (record, seq)
);

CREATE TABLE meta (
    name  text  PRIMARY KEY,
    value bytea NOT NULL
);
