-- unsealed_events: the next events that no seal covers.
--
-- reads       semel_events, semel_seals
-- parameters  how many at most
-- answers     events, oldest first

SELECT * FROM semel_events
WHERE seq > coalesce((SELECT max(last_seq) FROM semel_seals), 0)
ORDER BY seq
LIMIT ?
