-- count_documents: how many documents stand in an index.
--
-- reads       places
-- parameters  1 tenant, 2 index
-- answers     how many

SELECT count(*) FROM places WHERE shelf = $2::text AND tenant = $1::text
