-- tenants: those with a document in the index at a score of at most `upto`.
--
-- reads       semel_places
-- parameters  index, index, index, upto
-- answers     each tenant once
--
-- From each tenant to the next by one look into the index, however many documents a tenant has there.

WITH RECURSIVE standing (tenant) AS (
    SELECT (SELECT tenant FROM semel_places WHERE shelf = ? ORDER BY tenant LIMIT 1)
    UNION ALL
    SELECT (SELECT semel_places.tenant FROM semel_places WHERE semel_places.shelf = ? AND semel_places.tenant > standing.tenant
            ORDER BY semel_places.tenant LIMIT 1)
    FROM standing WHERE standing.tenant IS NOT NULL
)
SELECT tenant FROM standing
WHERE tenant IS NOT NULL
    AND (SELECT semel_places.score FROM semel_places WHERE semel_places.shelf = ? AND semel_places.tenant = standing.tenant
         ORDER BY semel_places.score LIMIT 1) <= ?
