-- drop_events: drop a run of events from the beginning; drop_traces comes first.
--
-- writes      semel_events
-- parameters  the number of the last one to drop
-- answers     nothing

DELETE FROM semel_events WHERE seq <= ?
