-- The second schema: documents, beside what there was. Nothing of the first changes, so a process of the release
-- before, which has the file open already, goes on with its records.
--
-- documents  what the gateway keeps; `places` is a JSON list of [index, score], as the document was written with it
-- places     the same, one row for each, in the order in which an index is scanned: a document need not be read to be
--            counted, and the tenants of an index are found by leaping from one to the next
--
-- A rowid table with an index beside it, for the reason that records has one. The body comes last, so that tag and
-- places are read without it, however long it is.

CREATE TABLE semel_documents (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    tag    TEXT NOT NULL,
    places TEXT NOT NULL,
    body   BLOB NOT NULL,
    UNIQUE (tenant, id),
    CHECK (typeof(body) = 'blob')
);

CREATE TABLE semel_places (
    shelf  TEXT    NOT NULL,
    tenant TEXT    NOT NULL,
    score  INTEGER NOT NULL,
    id     TEXT    NOT NULL,
    PRIMARY KEY (shelf, tenant, score, id),
    CHECK (typeof(score) = 'integer')
) WITHOUT ROWID;
