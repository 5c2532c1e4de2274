-- last_seal: the newest seal.
--
-- reads       semel_seals
-- answers     the seal, or nothing if there is none

SELECT * FROM semel_seals ORDER BY number DESC LIMIT 1
