-- commit_documents_3: the one step that writes documents.
-- works with schema 1 and newer: a later Semel that wants another step adds one under another number
--
-- writes      documents, places, commits_seq
-- parameters  now, or NULL for the server's; then any number of commits: one array each of tenants and tags; and of
--             what they expect, put, drop and need capacity for, all of it in a row, with an array of where each
--             commit's part ends. A tag that is expected is NULL for a document that has to be absent
-- answers     for each commit one row: its position and tag, now, whether it is done, the number of this transaction
--             among those that wrote, which of its capacities is full, and how many stand there; or, where documents
--             are not as expected, one row for each: its id, and tag, body and places of what is there
--
-- It is VOLATILE, and at READ COMMITTED: so each statement sees what was committed before it began, and what
-- follows the lock sees all that the lock's last holder wrote. With an older snapshot it would count too few.
--
-- Locks are taken in the order of their numbers, which are hashes: two tenants with one hash wait for each other, and
-- two transactions never deadlock. A tenant's commits keep their order.
--
-- Each row is looked up by its whole key, one after the other (LIMIT 1 in a LATERAL says so): a planner that believes
-- the tables to be small would else read all that a tenant has, and keep to it when they have grown.

CREATE FUNCTION commit_documents_3(
    told_us bigint, tenants text[], tags text[],
    expect_ends bigint[], expect_ids text[], expect_tags text[],
    put_ends bigint[], put_ids text[], put_bodies bytea[], put_places text[],
    drop_ends bigint[], drop_ids text[],
    room_ends bigint[], room_shelves text[], room_limits bigint[]
) RETURNS TABLE (
    answer_to bigint, whose_tag text, now_us bigint, done boolean, newest_commit bigint, full_room bigint,
    standing bigint, found_id text, found_tag text, found_body bytea, found_places text
) LANGUAGE plpgsql VOLATILE AS $function$
DECLARE
    asked      record;
    old        record;
    put_first  bigint;
    put_last   bigint;
    new_ids    text[];
    new_places text[];
    gone_ids   text[];
    gone_id    text;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'documents are committed at READ COMMITTED only' USING ERRCODE = 'invalid_transaction_state';
    END IF;

    <<commits>>
    FOR asked IN
        SELECT c.tenant, c.tag, c.position,
            hashtextextended('semel documents ' || current_schema() || ' ' || c.tenant, 0) AS lock
        FROM unnest(tenants, tags) WITH ORDINALITY AS c (tenant, tag, position)
        ORDER BY lock, c.position
    LOOP
        PERFORM pg_advisory_xact_lock(asked.lock);
        answer_to := asked.position;
        whose_tag := asked.tag;
        now_us := coalesce(told_us, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint);
        done := false;
        full_room := NULL;
        standing := NULL;
        put_first := coalesce(put_ends[asked.position - 1], 0) + 1;
        put_last := put_ends[asked.position];

        -- Done before, and the reply was lost.
        IF EXISTS (
            SELECT FROM documents AS d
            WHERE d.tenant = asked.tenant AND d.id = put_ids[put_first] AND d.tag = asked.tag
                AND put_first <= put_last
        ) THEN
            done := true;
            RETURN NEXT;
            CONTINUE commits;
        END IF;

        RETURN QUERY
            SELECT answer_to, whose_tag, now_us, false, newest_commit, NULL::bigint, NULL::bigint,
                e.id, d.tag, d.body, d.places::text
            FROM unnest(
                expect_ids[coalesce(expect_ends[asked.position - 1], 0) + 1 : expect_ends[asked.position]],
                expect_tags[coalesce(expect_ends[asked.position - 1], 0) + 1 : expect_ends[asked.position]]
            ) AS e (id, tag)
                LEFT JOIN LATERAL (
                    SELECT * FROM documents WHERE tenant = asked.tenant AND id = e.id LIMIT 1
                ) AS d ON true
            WHERE d.tag IS DISTINCT FROM e.tag;
        CONTINUE commits WHEN FOUND;

        FOR room IN coalesce(room_ends[asked.position - 1], 0) + 1 .. room_ends[asked.position] LOOP
            -- No more are counted than it takes to refuse, and some, to tell how many there are where the limit
            -- was lowered: an index of millions would have everybody of the tenant wait.
            SELECT count(*) INTO standing FROM (
                SELECT FROM places AS p
                WHERE p.shelf = room_shelves[room] AND p.tenant = asked.tenant
                LIMIT greatest(0, room_limits[room]) + 1000
            ) AS counted;
            IF standing >= room_limits[room] THEN
                full_room := room - coalesce(room_ends[asked.position - 1], 0);
                RETURN NEXT;
                CONTINUE commits;
            END IF;
        END LOOP;

        new_ids := put_ids[put_first : put_last];
        new_places := put_places[put_first : put_last];
        gone_ids := drop_ids[coalesce(drop_ends[asked.position - 1], 0) + 1 : drop_ends[asked.position]];
        done := true;
        standing := NULL;
        IF cardinality(new_ids) + cardinality(gone_ids) > 0 THEN
            newest_commit := coalesce(newest_commit, nextval('commits_seq'));
        END IF;

        -- An entry that stays what it was is not touched. What is dropped has no new places: NULL.
        FOR old IN
            SELECT n.id, was.place ->> 0 AS shelf, (was.place ->> 1)::bigint AS score
            FROM unnest(new_ids || gone_ids, new_places) AS n (id, places)
                CROSS JOIN LATERAL (
                    SELECT d.places FROM documents AS d WHERE d.tenant = asked.tenant AND d.id = n.id LIMIT 1
                ) AS d
                CROSS JOIN LATERAL jsonb_array_elements(d.places) AS was (place)
            WHERE n.places IS NULL OR NOT n.places::jsonb @> jsonb_build_array(was.place)
        LOOP
            DELETE FROM places AS p
            WHERE p.shelf = old.shelf AND p.tenant = asked.tenant AND p.score = old.score AND p.id = old.id;
        END LOOP;

        FOREACH gone_id IN ARRAY gone_ids LOOP
            DELETE FROM documents AS d WHERE d.tenant = asked.tenant AND d.id = gone_id;
        END LOOP;

        INSERT INTO documents AS d (tenant, id, tag, body, places)
        SELECT asked.tenant, n.id, asked.tag, n.body, n.places::jsonb
        FROM unnest(new_ids, put_bodies[put_first : put_last], new_places) AS n (id, body, places)
        ON CONFLICT (tenant, id) DO UPDATE
            SET tag = excluded.tag, body = excluded.body, places = excluded.places;

        INSERT INTO places (shelf, tenant, score, id)
        SELECT new.place ->> 0, asked.tenant, (new.place ->> 1)::bigint, n.id
        FROM unnest(new_ids, new_places) AS n (id, places)
            CROSS JOIN LATERAL jsonb_array_elements(n.places::jsonb) AS new (place)
        ON CONFLICT DO NOTHING;

        RETURN NEXT;
    END LOOP;
END
$function$;
