-- count_records: how many records there are in each state, over all tenants.
--
-- reads       records
-- answers     state, count

SELECT state, count(*) FROM records GROUP BY state
