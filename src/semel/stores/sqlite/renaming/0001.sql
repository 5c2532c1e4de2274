-- A file of the first schema from before all tables were called semel_…: it is called so afterwards.

ALTER TABLE records RENAME TO semel_records;
ALTER TABLE events RENAME TO semel_events;
ALTER TABLE seals RENAME TO semel_seals;
ALTER TABLE traces RENAME TO semel_traces;
ALTER TABLE meta RENAME TO semel_meta;

DROP INDEX records_by_due;
CREATE INDEX semel_records_by_due ON semel_records (due) WHERE due IS NOT NULL;

DROP INDEX records_by_age;
CREATE INDEX semel_records_by_age ON semel_records (tenant, created_at, id);
