-- note_event: write one event, in the transaction of what it tells.
--
-- writes      events
-- reads       seals, for the number that the last dropped event had
-- parameters  the event's columns after seq
-- answers     nothing
--
-- Dropped events are a sealed beginning of the list, so the next number is always one more than the last of both.

INSERT INTO events VALUES (
    coalesce((SELECT max(seq) FROM events), (SELECT max(last_seq) FROM seals), 0) + 1,
    ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
)
