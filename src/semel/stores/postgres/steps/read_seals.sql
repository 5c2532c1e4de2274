-- read_seals: seals in the order of their number.
--
-- reads       seals
-- parameters  1 after which number, 2 how many at most
-- answers     seals

SELECT number, first_seq, last_seq, events, hash, at_us FROM seals
WHERE number > $1::bigint ORDER BY number LIMIT $2::bigint
