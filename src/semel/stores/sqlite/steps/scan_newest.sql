-- scan, newest first: documents of an index, highest score first, then byte by byte by id, the last first.
--
-- reads       semel_places, semel_documents
-- parameters  index, tenant, before (score, id: the largest values for "from the newest"), how many at most
-- answers     id, body, tag, places of each
--
-- One bound for "after" and "upto", the lower of the two: the index begins at one, and of two it would take the first.
-- LEFT JOIN, so that an entry without its document shows as damage and not as absence.

SELECT semel_places.id, semel_documents.body, semel_documents.tag, semel_documents.places
FROM semel_places LEFT JOIN semel_documents ON semel_documents.tenant = semel_places.tenant AND semel_documents.id = semel_places.id
WHERE semel_places.shelf = ? AND semel_places.tenant = ? AND (semel_places.score, semel_places.id) < (?, ?)
ORDER BY semel_places.score DESC, semel_places.id DESC
LIMIT ?
