-- read_seals: seals in the order of their number.
--
-- reads       semel_seals
-- parameters  after which number, how many at most
-- answers     seals

SELECT * FROM semel_seals WHERE number > ? ORDER BY number LIMIT ?
