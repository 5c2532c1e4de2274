-- The same row as for many, the only one, found with less effort.
SELECT {request}, r.address, clock.now_us, true, (SELECT seq FROM noted),
    CASE WHEN r.waited THEN pg_notify($3::text, encode(r.address, 'hex'))::text END, r.id, r.fence, r.whole
FROM changed AS r CROSS JOIN clock
UNION ALL
SELECT {request}, asked.address, clock.now_us, false, NULL, NULL, NULL, NULL, r
FROM asked CROSS JOIN clock LEFT JOIN records AS r ON r.address = asked.address
WHERE NOT EXISTS (SELECT FROM changed)
