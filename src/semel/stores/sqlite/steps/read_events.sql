-- read_events: events in the order of their number, of one tenant or of all.
--
-- reads       semel_events
-- parameters  after which number, tenant or NULL, tenant again, how many at most
-- answers     events

SELECT * FROM semel_events WHERE seq > ? AND (? IS NULL OR tenant = ?) ORDER BY seq LIMIT ?
