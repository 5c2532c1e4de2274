-- newest_event: when the newest events happened, for the check of the clock.
--
-- reads       semel_events
-- parameters  how many of the newest to look at
-- answers     the latest time, or NULL

SELECT max(at_us) FROM (SELECT at_us FROM semel_events ORDER BY seq DESC LIMIT ?)
