-- Documents: what semel.stores.documents keeps.
-- works with schema 1 and newer: a Semel that knows nothing of documents touches none of this
--
-- documents    bytes under a tenant and an id, the tag of the commit that wrote them, and where they stand
-- places       the same, a row for each entry: what is counted and what is scanned
-- commits_seq  counts the transactions that wrote documents, so that an older state of them is noticed
--
-- Texts are escaped as in schema 1, and compare byte by byte. `places` of a document is [["index", score], ...], in the
-- order in which they were given.

CREATE TABLE documents (
    tenant text  COLLATE "C" NOT NULL,
    id     text  COLLATE "C" NOT NULL,
    tag    text  COLLATE "C" NOT NULL,
    body   bytea NOT NULL,
    places jsonb NOT NULL,
    PRIMARY KEY (tenant, id),
    CONSTRAINT places_are_a_list CHECK (jsonb_typeof(places) = 'array')
-- Space for the next body beside the present one: a heap-only update, which touches no index. A document is replaced
-- some times in its life, so the table is swept of dead rows early.
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_cost_delay = 0);

-- `shelf` is the name of an index of documents. It comes first, so that the primary key also finds the tenants of an
-- index. Whoever counts an index passes its dead rows too, so they are swept even earlier.
CREATE TABLE places (
    shelf  text   COLLATE "C" NOT NULL,
    tenant text   COLLATE "C" NOT NULL,
    score  bigint NOT NULL,
    id     text   COLLATE "C" NOT NULL,
    PRIMARY KEY (shelf, tenant, score, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_cost_delay = 0);

CREATE SEQUENCE commits_seq;
