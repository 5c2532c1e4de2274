-- find_record: the record with this id.
--
-- reads       semel_records by age
-- parameters  tenant, id
-- answers     the record, or nothing if there is none

SELECT * FROM semel_records WHERE tenant = ? AND id = ?
