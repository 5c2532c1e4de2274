-- last_seal: the newest seal.
--
-- reads       seals
-- answers     the seal, or nothing if there is none

SELECT number, first_seq, last_seq, events, hash, at_us FROM seals ORDER BY number DESC LIMIT 1
