-- drop_traces: forget whose the events of a run were, before the run itself is dropped.
--
-- writes      semel_traces
-- reads       semel_events
-- parameters  the number of the last event of the run
-- answers     nothing

DELETE FROM semel_traces WHERE (record_id, seq) IN (SELECT record_id, seq FROM semel_events WHERE seq <= ?)
