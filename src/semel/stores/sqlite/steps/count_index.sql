-- count an index: how many documents stand in it.
--
-- reads       semel_places
-- parameters  index, tenant, the number at which to stop counting (-1: never)
-- answers     the number

SELECT count(*) FROM (SELECT 1 FROM semel_places WHERE shelf = ? AND tenant = ? LIMIT ?)
