-- What is unsettled is found without reading what is settled, and no call pays for it.
-- works with schema 1 and newer: the server keeps `stopped` for everybody, and a Semel that knows nothing of `closes`
-- files settled records where it did, under `due`
--
-- stopped   created_at of a record that waits for a person or is in doubt, else NULL. A column of its own, because an
--           index that names `state` would make every settlement touch every index: the usual call leaves this NULL
-- closes    when the window of a settled record ends, for the sweeper: it moves a record from `due` to here when it
--           first finds it settled. So `due` has what is unsettled, and what was settled since the sweeper looked, which
--           it does when the lease would have ended
--
-- `stopped` is computed for what there is: the table is written anew once, some seconds for each million records, during
-- which calls wait or are refused.

ALTER TABLE records
    ADD COLUMN closes bigint,
    ADD COLUMN stopped bigint
        GENERATED ALWAYS AS (CASE WHEN state IN ('waiting', 'in_doubt') THEN created_at END) STORED;

CREATE INDEX records_by_close ON records (closes) WHERE closes IS NOT NULL;
CREATE INDEX records_stopped ON records (hashtextextended(tenant, 0), stopped) WHERE stopped IS NOT NULL;
