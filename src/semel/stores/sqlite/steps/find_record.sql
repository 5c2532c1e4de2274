-- find_record: the record with this id.
--
-- reads       records by age
-- parameters  tenant, id
-- answers     the record, or nothing if there is none

SELECT * FROM records WHERE tenant = ? AND id = ?
