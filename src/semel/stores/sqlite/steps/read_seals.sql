-- read_seals: seals in the order of their number.
--
-- reads       seals
-- parameters  after which number, how many at most
-- answers     seals

SELECT * FROM seals WHERE number > ? ORDER BY number LIMIT ?
