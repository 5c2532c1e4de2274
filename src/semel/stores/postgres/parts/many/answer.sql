-- One row for each command: the request's number, the address, now, whether it was applied, the newest event's number,
-- whether somebody was told, the record's id and fence, and the record itself, unless whoever asked can tell it. Where
-- the command was not applied the record is the one that the statement began with: whether that one refuses the command
-- is for the caller to see, who else asks again.
SELECT {request}, r.address, clock.now_us, true, (SELECT max(seq) FROM noted),
    CASE WHEN r.waited THEN pg_notify($3::text, encode(r.address, 'hex'))::text END, r.id, r.fence, r.whole
FROM changed AS r CROSS JOIN clock
UNION ALL
SELECT {request}, asked.address, clock.now_us, false, NULL, NULL, NULL, NULL, r
FROM asked CROSS JOIN clock LEFT JOIN records AS r ON r.address = asked.address
WHERE asked.address NOT IN (SELECT address FROM changed)
