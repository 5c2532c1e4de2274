-- add a place: the document stands on the shelf at this score.
--
-- writes      places
-- parameters  shelf, tenant, score, id
-- answers     nothing

INSERT INTO places (shelf, tenant, score, id) VALUES (?, ?, ?, ?)
