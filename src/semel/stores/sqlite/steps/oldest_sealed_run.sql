-- oldest_sealed_run: where the oldest sealed run of events ends, if its last event is too old to keep.
--
-- reads       semel_events, semel_seals
-- parameters  the time before which events are too old
-- answers     the number of that event, or nothing
--
-- Whole seals from the beginning only, so that what is left can still be verified.

SELECT seq FROM semel_events
WHERE seq = (SELECT min(last_seq) FROM semel_seals WHERE last_seq >= (SELECT min(seq) FROM semel_events))
    AND at_us < ?
