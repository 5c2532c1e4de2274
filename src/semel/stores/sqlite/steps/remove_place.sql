-- remove a place: the document no longer stands on the shelf at this score.
--
-- writes      semel_places
-- parameters  shelf, tenant, score, id
-- answers     nothing

DELETE FROM semel_places WHERE shelf = ? AND tenant = ? AND score = ? AND id = ?
