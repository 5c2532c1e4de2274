-- note_event: write one event, in the transaction of what it tells.
--
-- writes      semel_events
-- reads       semel_seals, for the number that the last dropped event had
-- parameters  the event's columns after seq
-- answers     nothing
--
-- Dropped events are a sealed beginning of the list, so the next number is always one more than the last of both.

INSERT INTO semel_events VALUES (
    coalesce((SELECT max(seq) FROM semel_events), (SELECT max(last_seq) FROM semel_seals), 0) + 1,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
