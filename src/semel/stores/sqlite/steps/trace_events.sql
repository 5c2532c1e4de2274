-- trace_events: remember whose the events of a newly sealed run are.
--
-- writes      semel_traces
-- reads       semel_events
-- parameters  the numbers of the first and the last event of the run
-- answers     nothing

INSERT INTO semel_traces SELECT record_id, seq FROM semel_events WHERE seq BETWEEN ? AND ?
