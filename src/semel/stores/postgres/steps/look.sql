-- look: the records at some addresses.
--
-- reads       records
-- parameters  1 now, or NULL for the server's; 2 whether events are written, 3 the channel: unused;
--             4 addresses
-- answers     as in answer.sql

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT asked.position, clock.now_us, false, NULL::bigint, NULL::text,
    {record}
FROM unnest($4::bytea[]) WITH ORDINALITY AS asked (address, position)
    CROSS JOIN clock
    LEFT JOIN records AS r ON r.address = asked.address
WHERE $2::boolean IS NOT NULL AND $3::text IS NOT NULL
