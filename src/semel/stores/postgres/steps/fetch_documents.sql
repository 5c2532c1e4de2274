-- fetch_documents: documents by their ids, as of one moment.
--
-- reads       documents
-- parameters  1 now, or NULL for the server's; 2 tenant; 3 array of ids
-- answers     now, id, tag, body, places; one row with nothing but the time if there are none
--
-- LIMIT 1: see schema/0003.sql.

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT clock.now_us, d.id, d.tag, d.body, d.places::text
FROM clock LEFT JOIN (
    unnest($3::text[]) AS asked (id) CROSS JOIN LATERAL (
        SELECT * FROM documents WHERE tenant = $2::text AND id = asked.id LIMIT 1
    ) AS d
) ON true
