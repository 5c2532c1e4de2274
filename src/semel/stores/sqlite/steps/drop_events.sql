-- drop_events: drop a run of events from the beginning; drop_traces comes first.
--
-- writes      events
-- parameters  the number of the last one to drop
-- answers     nothing

DELETE FROM events WHERE seq <= ?
