-- read_meta: a fact of this store.
--
-- reads       semel_meta
-- parameters  name
-- answers     its value, or nothing

SELECT value FROM semel_meta WHERE name = ?
