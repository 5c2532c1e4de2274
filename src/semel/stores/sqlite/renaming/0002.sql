-- What the second schema added, called as it is today.

ALTER TABLE documents RENAME TO semel_documents;
ALTER TABLE places RENAME TO semel_places;
