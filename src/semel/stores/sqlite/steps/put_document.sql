-- put a document: it is there, instead of the one with its id. Its rows of `places` are written beside it.
--
-- writes      semel_documents
-- parameters  tenant, id, tag, places as a JSON list, body
-- answers     nothing

INSERT INTO semel_documents (tenant, id, tag, places, body) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (tenant, id) DO UPDATE SET tag = excluded.tag, places = excluded.places, body = excluded.body
