-- identify: whose records these are, and how far their history has come.
--
-- reads       meta, the sequences of events and commits
-- answers     the store's id, its secret key, the number that was given to an event last, and that of a commit

SELECT
    (SELECT value FROM meta WHERE name = 'store_id'),
    (SELECT value FROM meta WHERE name = 'secret_key'),
    CASE WHEN e.is_called THEN e.last_value ELSE 0 END,
    CASE WHEN c.is_called THEN c.last_value ELSE 0 END
FROM events_seq_seq AS e CROSS JOIN commits_seq AS c
