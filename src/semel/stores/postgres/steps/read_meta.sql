-- read_meta: the facts of this store.
--
-- reads       meta
-- answers     name, value; fails if there is no such table

SELECT name, value FROM meta
