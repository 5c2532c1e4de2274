-- health: the rest of what a person should know.
--
-- reads       events, records
-- parameters  1 now, or NULL for the server's
-- answers     now, the time of the newest event, events beyond the last seal, the age in seconds of the oldest
--             transaction that keeps seals and cleaning back, rows and dead rows of records as last counted

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT
    now_us,
    (SELECT max(at_us) FROM (SELECT at_us FROM events ORDER BY seq DESC LIMIT 1000) AS newest),
    (SELECT count(*) FROM (
        SELECT 1 FROM events
        WHERE seq > coalesce((SELECT max(last_seq) FROM seals), 0) LIMIT 1000000
    ) AS unsealed),
    (SELECT coalesce(extract(epoch FROM max(clock_timestamp() - xact_start)), 0)::bigint
        FROM pg_stat_activity WHERE backend_xid IS NOT NULL OR backend_xmin IS NOT NULL),
    (SELECT coalesce(n_live_tup, 0) FROM pg_stat_user_tables
        WHERE relname = 'records' AND schemaname = current_schema()),
    (SELECT coalesce(n_dead_tup, 0) FROM pg_stat_user_tables
        WHERE relname = 'records' AND schemaname = current_schema())
FROM clock
