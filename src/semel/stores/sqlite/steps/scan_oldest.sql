-- scan, oldest first: documents of an index, lowest score first, then byte by byte by id.
--
-- reads       semel_places, semel_documents
-- parameters  index, tenant, after (score, id: the smallest values for "from the beginning"), upto (the largest for
--             none), how many at most
-- answers     id, body, tag, places of each
--
-- LEFT JOIN, so that an entry without its document shows as damage and not as absence.

SELECT semel_places.id, semel_documents.body, semel_documents.tag, semel_documents.places
FROM semel_places LEFT JOIN semel_documents ON semel_documents.tenant = semel_places.tenant AND semel_documents.id = semel_places.id
WHERE semel_places.shelf = ? AND semel_places.tenant = ? AND (semel_places.score, semel_places.id) > (?, ?) AND semel_places.score <= ?
ORDER BY semel_places.score, semel_places.id
LIMIT ?
