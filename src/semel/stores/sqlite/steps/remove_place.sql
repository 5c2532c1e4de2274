-- remove an entry: the document no longer stands in the index at this score.
--
-- writes      semel_places
-- parameters  index, tenant, score, id
-- answers     nothing

DELETE FROM semel_places WHERE shelf = ? AND tenant = ? AND score = ? AND id = ?
