-- scan, oldest first: documents of a shelf, lowest score first, then byte by byte by id.
--
-- reads       places, documents
-- parameters  shelf, tenant, after (score, id: the smallest values for "from the beginning"), upto (the largest for
--             none), how many at most
-- answers     id, body, tag, places of each
--
-- LEFT JOIN, so that a place without its document shows as damage and not as absence.

SELECT places.id, documents.body, documents.tag, documents.places
FROM places LEFT JOIN documents ON documents.tenant = places.tenant AND documents.id = places.id
WHERE places.shelf = ? AND places.tenant = ? AND (places.score, places.id) > (?, ?) AND places.score <= ?
ORDER BY places.score, places.id
LIMIT ?
