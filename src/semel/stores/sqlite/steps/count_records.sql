-- count_records: how many records there are in each state, over all tenants.
--
-- reads       semel_records
-- answers     state, count

SELECT state, count(*) FROM semel_records GROUP BY state
