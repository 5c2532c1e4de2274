-- The third schema: what is unsettled is found without reading what is settled, and no call pays for it.
--
-- records_stopped   what waits for a person or is in doubt: no usual call ever enters or leaves it
-- records.closes    when the window of a settled record ends, for the sweeper: it moves a record from `due` to here when
--                   it first finds it settled. So `due` has what is unsettled, and what was settled since the sweeper
--                   looked, which it does when the lease would have ended
--
-- An index with the pending ones in it would be one page more in every claim and every settlement.

ALTER TABLE semel_records ADD COLUMN closes INTEGER;

CREATE INDEX semel_records_by_close ON semel_records (closes) WHERE closes IS NOT NULL;

CREATE INDEX semel_records_stopped ON semel_records (tenant, created_at, id) WHERE state IN ('waiting', 'in_doubt');
