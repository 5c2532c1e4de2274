-- One row for each command: position, now, whether it was applied, the newest event's number, whether somebody
-- was told, the record. Where it was not applied the record is the one that the statement began with: whether that
-- one refuses the command is for the caller to see, who else asks again.
SELECT r.position, clock.now_us, true, (SELECT max(seq) FROM noted),
    CASE WHEN r.waited THEN pg_notify($3::text, encode(r.address, 'hex'))::text END,
    {record}
FROM changed AS r CROSS JOIN clock
UNION ALL
SELECT asked.position, clock.now_us, false, NULL, NULL,
    {record}
FROM asked CROSS JOIN clock LEFT JOIN records AS r ON r.address = asked.address
WHERE asked.position NOT IN (SELECT position FROM changed)
