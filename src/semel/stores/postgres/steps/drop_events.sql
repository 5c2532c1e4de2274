-- drop_events: drop the oldest sealed run of events, and whose they were, if its last event is too old to keep.
--
-- writes      events, traces
-- reads       seals
-- parameters  1 now, or NULL for the server's; 2 how long events are kept
-- answers     how many were dropped
--
-- Whole seals from the beginning only, so that what is left can still be verified.

WITH clock AS MATERIALIZED (
    {clock}
), run AS MATERIALIZED (
    SELECT e.seq AS last_seq FROM events AS e CROSS JOIN clock
    WHERE e.seq = (SELECT min(last_seq) FROM seals WHERE last_seq >= (SELECT min(seq) FROM events))
        AND e.at_us < clock.now_us - $2::bigint
), dropped AS (
    DELETE FROM events AS e USING run WHERE e.seq <= run.last_seq
    RETURNING e.record_id, e.seq
), forgotten AS (
    DELETE FROM traces AS t USING dropped
    WHERE t.record = hashtextextended(dropped.record_id, 0) AND t.seq = dropped.seq
)
SELECT count(*) FROM dropped
