-- unsealed_events: the next events that no seal covers.
--
-- reads       events, seals
-- parameters  how many at most
-- answers     events, oldest first

SELECT * FROM events
WHERE seq > coalesce((SELECT max(last_seq) FROM seals), 0)
ORDER BY seq
LIMIT ?
