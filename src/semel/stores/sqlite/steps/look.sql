-- look: the record at an address.
--
-- reads       records
-- parameters  tenant, scope, key
-- answers     the record, or nothing if there is none

SELECT * FROM records WHERE tenant = ? AND scope = ? AND key = ?
