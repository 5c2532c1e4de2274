-- remove a place: the document no longer stands on the shelf at this score.
--
-- writes      places
-- parameters  shelf, tenant, score, id
-- answers     nothing

DELETE FROM places WHERE shelf = ? AND tenant = ? AND score = ? AND id = ?
