-- tables: what was ever made in this file.
--
-- reads       sqlite_master
-- answers     the name of each table, index, trigger and view

SELECT name FROM sqlite_master
