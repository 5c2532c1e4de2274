-- scan_newest: documents of one index, the newest first.
--
-- reads       places, documents
-- parameters  1 now, or NULL for the server's; 2 tenant; 3 index; 4, 5 score and id beyond which to begin;
--             6 the highest score; 7 how many at most
-- answers     now, score, id, and tag, body and places of the document; only the time if there are none
--
-- An entry without its document is damage: its row has no tag. LIMIT 1: see schema/0003.sql.

WITH clock AS MATERIALIZED (
    {clock}
)
SELECT clock.now_us, p.score, p.id, d.tag, d.body, d.places::text
FROM clock LEFT JOIN (
    SELECT score, id FROM places
    WHERE shelf = $3::text AND tenant = $2::text
        AND (score, id) < ($4::bigint, $5::text) AND score <= $6::bigint
    ORDER BY score DESC, id DESC
    LIMIT $7::bigint
) AS p ON true
    LEFT JOIN LATERAL (
        SELECT * FROM documents WHERE tenant = $2::text AND id = p.id LIMIT 1
    ) AS d ON true
ORDER BY p.score DESC, p.id DESC
