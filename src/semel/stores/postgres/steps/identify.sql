-- identify: whose records these are, and how far their history has come.
--
-- reads       meta, the sequence of events
-- answers     the store's id, its secret key, the number that was given to an event last

SELECT
    (SELECT value FROM meta WHERE name = 'store_id'),
    (SELECT value FROM meta WHERE name = 'secret_key'),
    CASE WHEN is_called THEN last_value ELSE 0 END
FROM events_seq_seq
