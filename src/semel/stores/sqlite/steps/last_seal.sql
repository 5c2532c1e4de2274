-- last_seal: the newest seal.
--
-- reads       seals
-- answers     the seal, or nothing if there is none

SELECT * FROM seals ORDER BY number DESC LIMIT 1
