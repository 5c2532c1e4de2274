-- look: the records at some addresses.
--
-- reads       records
-- parameters  1 now, or NULL for the server's; 2 whether events are written, 3 the channel: unused;
--             then of each command its address
-- answers     as in parts/many/answer.sql

WITH clock AS MATERIALIZED (
    {clock}
), asked AS {asked
    address bytea
}, changed AS (
    SELECT {changed}, r AS whole FROM records AS r WHERE false
), noted AS (
    SELECT NULL::bigint AS seq WHERE $2::boolean
)
{answer}
