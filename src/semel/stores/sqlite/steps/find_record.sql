-- find_record: the record with this id, where no event tells its key: they were dropped, or the audit is off.
--
-- reads       semel_records by age, all of the tenant's
-- parameters  tenant, id
-- answers     the record, or nothing if there is none

SELECT * FROM semel_records WHERE tenant = ? AND id = ?
