-- write_meta: write a fact of this store down, once.
--
-- writes      semel_meta
-- parameters  name, value
-- answers     nothing; a value that is there already stays

INSERT INTO semel_meta (name, value) VALUES (?, ?) ON CONFLICT (name) DO NOTHING
