-- count_documents: how many documents stand on a shelf.
--
-- reads       places
-- parameters  1 tenant, 2 shelf
-- answers     how many

SELECT count(*) FROM places WHERE shelf = $2::text AND tenant = $1::text
