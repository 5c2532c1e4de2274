-- fetch documents: those with these ids, as of one moment, because one statement sees one.
--
-- reads       documents
-- parameters  ids as a JSON list, tenant
-- answers     id, body, tag, places of each that exists
--
-- CROSS JOIN fixes the order: for each id one look into the index.

SELECT documents.id, documents.body, documents.tag, documents.places
FROM json_each(?) AS wanted CROSS JOIN documents
WHERE documents.tenant = ? AND documents.id = wanted.value
