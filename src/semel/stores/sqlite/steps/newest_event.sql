-- newest_event: when the newest events happened, for the check of the clock.
--
-- reads       events
-- parameters  how many of the newest to look at
-- answers     the latest time, or NULL

SELECT max(at_us) FROM (SELECT at_us FROM events ORDER BY seq DESC LIMIT ?)
