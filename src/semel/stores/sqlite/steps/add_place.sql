-- add a place: the document stands on the shelf at this score.
--
-- writes      semel_places
-- parameters  shelf, tenant, score, id
-- answers     nothing

INSERT INTO semel_places (shelf, tenant, score, id) VALUES (?, ?, ?, ?)
