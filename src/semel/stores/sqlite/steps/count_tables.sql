-- count_tables: whether anything was ever made in this file.
--
-- reads       sqlite_master
-- answers     how many tables, indexes and views there are

SELECT count(*) FROM sqlite_master
