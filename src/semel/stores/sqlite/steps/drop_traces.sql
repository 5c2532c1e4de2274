-- drop_traces: forget whose the events of a run were, before the run itself is dropped.
--
-- writes      traces
-- reads       events
-- parameters  the number of the last event of the run
-- answers     nothing

DELETE FROM traces WHERE (record_id, seq) IN (SELECT record_id, seq FROM events WHERE seq <= ?)
