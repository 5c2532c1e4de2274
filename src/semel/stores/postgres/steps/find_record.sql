-- find_record: the record with this id.
--
-- reads       records by id
-- parameters  1 tenant, 2 id
-- answers     the record, or nothing if there is none

SELECT {record}
FROM records AS r
WHERE hashtextextended(r.id, 0) = hashtextextended($2::text COLLATE "C", 0)
    AND r.id = $2::text AND r.tenant = $1::text
