-- find_tenants: tenants with a document in an index at a score of at most so much.
--
-- reads       places
-- parameters  1 now, or NULL for the server's; 2 index; 3 the highest score, or NULL for now
-- answers     tenants
--
-- From each tenant it leaps to the next, so a tenant costs the same whether one document is due or a million.

WITH RECURSIVE clock AS MATERIALIZED (
    {clock}
), standing AS (
    (
        SELECT tenant, score FROM places WHERE shelf = $2::text
        ORDER BY tenant, score
        LIMIT 1
    )
    UNION ALL
    SELECT following.tenant, following.score
    FROM standing CROSS JOIN LATERAL (
        SELECT p.tenant, p.score FROM places AS p WHERE p.shelf = $2::text AND p.tenant > standing.tenant
        ORDER BY p.tenant, p.score
        LIMIT 1
    ) AS following
)
SELECT tenant FROM standing WHERE score <= coalesce($3::bigint, (SELECT now_us FROM clock))
