-- scan, newest first: documents of a shelf, highest score first, then byte by byte by id, the last first.
--
-- reads       places, documents
-- parameters  shelf, tenant, before (score, id: the largest values for "from the newest"), how many at most
-- answers     id, body, tag, places of each
--
-- One bound for "after" and "upto", the lower of the two: the index begins at one, and of two it would take the first.
-- LEFT JOIN, so that a place without its document shows as damage and not as absence.

SELECT places.id, documents.body, documents.tag, documents.places
FROM places LEFT JOIN documents ON documents.tenant = places.tenant AND documents.id = places.id
WHERE places.shelf = ? AND places.tenant = ? AND (places.score, places.id) < (?, ?)
ORDER BY places.score DESC, places.id DESC
LIMIT ?
