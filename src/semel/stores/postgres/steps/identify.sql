-- identify: whose records these are, and how far their history has come.
--
-- reads       meta, events, seals, the sequence of commits
-- answers     the store's id, its secret key, the number of the newest event, and that of the newest commit
--
-- The newest event is looked up: after a crash or a failover the sequence of events is up to 32 numbers ahead of them,
-- and would hide that some are gone. Events that were dropped for their age were sealed.

SELECT
    (SELECT value FROM meta WHERE name = 'store_id'),
    (SELECT value FROM meta WHERE name = 'secret_key'),
    greatest((SELECT max(seq) FROM events), (SELECT max(last_seq) FROM seals), 0),
    CASE WHEN c.is_called THEN c.last_value ELSE 0 END
FROM commits_seq AS c
