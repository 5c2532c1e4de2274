-- trace_events: remember whose the events of a newly sealed run are.
--
-- writes      traces
-- reads       events
-- parameters  the numbers of the first and the last event of the run
-- answers     nothing

INSERT INTO traces SELECT record_id, seq FROM events WHERE seq BETWEEN ? AND ?
