-- look at documents: what a commit has to know of those that it names, without their bodies.
--
-- reads       semel_documents
-- parameters  ids as a JSON list, tenant
-- answers     id, tag, places of each that exists
--
-- CROSS JOIN fixes the order: for each id one look into the index.

SELECT semel_documents.id, semel_documents.tag, semel_documents.places
FROM json_each(?) AS wanted CROSS JOIN semel_documents
WHERE semel_documents.tenant = ? AND semel_documents.id = wanted.value
