-- tenants: those with a document on the shelf at a score of at most `upto`.
--
-- reads       places
-- parameters  shelf, shelf, shelf, upto
-- answers     each tenant once
--
-- From each tenant to the next by one look into the index, however many documents a tenant has there.

WITH RECURSIVE standing (tenant) AS (
    SELECT (SELECT tenant FROM places WHERE shelf = ? ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT places.tenant FROM places WHERE places.shelf = ? AND places.tenant > standing.tenant
            ORDER BY places.tenant LIMIT 1)
    FROM standing WHERE standing.tenant IS NOT NULL
)
SELECT tenant FROM standing
WHERE tenant IS NOT NULL
    AND (SELECT places.score FROM places WHERE places.shelf = ? AND places.tenant = standing.tenant
         ORDER BY places.score LIMIT 1) <= ?
