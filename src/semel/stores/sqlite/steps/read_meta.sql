-- read_meta: a fact of this store.
--
-- reads       meta
-- parameters  name
-- answers     its value, or nothing

SELECT value FROM meta WHERE name = ?
