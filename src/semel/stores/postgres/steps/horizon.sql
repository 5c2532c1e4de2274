-- horizon: a transaction number larger than that of everyone who has taken an event's number so far, and the time.
--
-- An event's transaction takes its own number first and the event's number then. So whoever took an event's number
-- before last_event looked has a smaller number than this one: once all smaller ones have ended (horizon_reached), no
-- event up to that number can appear any more, and a seal over them skips nobody.
--
-- parameters  1 now, or NULL for the server's
-- answers     the transaction number, now

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT pg_current_xact_id(), now_us FROM clock
