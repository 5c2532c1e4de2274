-- add an entry: the document stands in the index at this score.
--
-- writes      semel_places
-- parameters  index, tenant, score, id
-- answers     nothing

INSERT INTO semel_places (shelf, tenant, score, id) VALUES (?, ?, ?, ?)
