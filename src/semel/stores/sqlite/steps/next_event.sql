-- next_event: the number that the next event gets, in the transaction that writes it.
--
-- reads       semel_events, and semel_seals for the number that the last dropped event had
-- parameters  none
-- answers     the number

SELECT coalesce((SELECT max(seq) FROM semel_events), (SELECT max(last_seq) FROM semel_seals), 0) + 1
