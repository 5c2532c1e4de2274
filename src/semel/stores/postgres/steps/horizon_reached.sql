-- horizon_reached: whether every transaction with a smaller number has ended.
--
-- parameters  1 the transaction number
-- answers     yes or no

SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint >= $1::bigint
