-- write_version: which schema Semel's tables have, where the file's own number is an application's.
--
-- writes      semel_meta
-- parameters  the number, as text
-- answers     nothing

INSERT INTO semel_meta (name, value) VALUES ('schema', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value
