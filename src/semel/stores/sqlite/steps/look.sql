-- look: the record at an address.
--
-- reads       semel_records
-- parameters  tenant, scope, key
-- answers     the record, or nothing if there is none

SELECT * FROM semel_records WHERE tenant = ? AND scope = ? AND key = ?
