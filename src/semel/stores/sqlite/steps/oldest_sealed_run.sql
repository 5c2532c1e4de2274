-- oldest_sealed_run: where the oldest sealed run of events ends, if its last event is too old to keep.
--
-- reads       events, seals
-- parameters  the time before which events are too old
-- answers     the number of that event, or nothing
--
-- Whole seals from the beginning only, so that what is left can still be verified.

SELECT seq FROM events
WHERE seq = (SELECT min(last_seq) FROM seals WHERE last_seq >= (SELECT min(seq) FROM events))
    AND at_us < ?
