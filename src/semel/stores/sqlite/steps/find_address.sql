-- find_address: scope and key of the record with this id, as its events tell them.
--
-- reads       semel_traces for sealed events, the end of semel_events for the others, which are few while somebody seals
-- parameters  1 tenant, 2 record id
-- answers     scope and key, or nothing if no event speaks of it
--
-- An index of records by id would be one page more in every claim.

SELECT scope, key FROM semel_events
WHERE seq = coalesce(
    (SELECT min(seq) FROM semel_traces WHERE record_id = ?2),
    (
        SELECT min(seq) FROM semel_events
        WHERE seq > coalesce((SELECT max(last_seq) FROM semel_seals), 0) AND record_id = ?2
    )
)
    AND tenant = ?1
