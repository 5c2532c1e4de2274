-- last_event: the number that was given to an event last, committed or not. The first half of a horizon.
--
-- reads       the sequence of events
-- answers     the number, 0 if none was given

SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM events_seq_seq
