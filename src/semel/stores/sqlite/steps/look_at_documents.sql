-- look at documents: what a commit has to know of those that it names, without their bodies.
--
-- reads       documents
-- parameters  ids as a JSON list, tenant
-- answers     id, tag, places of each that exists
--
-- CROSS JOIN fixes the order: for each id one look into the index.

SELECT documents.id, documents.tag, documents.places
FROM json_each(?) AS wanted CROSS JOIN documents
WHERE documents.tenant = ? AND documents.id = wanted.value
