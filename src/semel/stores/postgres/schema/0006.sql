-- commit_documents_6: as commit_documents_4, and an index is counted once for a tenant, not by each of its commits.
-- works with schema 1 and newer: a Semel that knows nothing of it goes on with the step that it has
--
-- writes      documents, places, commits_seq, events
-- parameters  those of commit_documents_4
-- answers     as commit_documents_4
--
-- Why it locks and looks up as it does is said in 0003.sql, and how events are told in 0004.sql. The lock's number is the
-- same, so the commits of all steps wait for each other.
--
-- A tenant's commits follow each other here, and while its lock is held nobody else changes what stands in its indexes:
-- so what was counted for one of them is followed, entry by entry, and holds for the next. Where a hundred runs of a
-- tenant begin at once, all hundred counted those that were active.

CREATE FUNCTION commit_documents_6(
    told_us bigint, tenants text[], tags text[],
    expect_ends bigint[], expect_ids text[], expect_tags text[],
    put_ends bigint[], put_ids text[], put_bodies bytea[], put_places text[],
    drop_ends bigint[], drop_ids text[],
    room_ends bigint[], room_shelves text[], room_limits bigint[],
    tellers bigint[], told text[]
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
    telling    bigint[] := '{}';  -- those of tellers that wrote
    added      record;
    known      bigint;
    whose      text;              -- the tenant of which these are
    shelves    text[];            -- indexes that were counted
    standings  bigint[];          -- how many stand in each of them by now
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
        IF whose IS DISTINCT FROM asked.tenant THEN
            whose := asked.tenant;
            shelves := '{}';
            standings := '{}';
        END IF;
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
            known := array_position(shelves, room_shelves[room]);
            IF known IS NOT NULL THEN
                standing := standings[known];
            ELSE
                -- No more are counted than it takes to refuse, and some, to tell how many there are where the limit
                -- was lowered: an index of millions would have everybody of the tenant wait.
                SELECT count(*) INTO standing FROM (
                    SELECT FROM places AS p
                    WHERE p.shelf = room_shelves[room] AND p.tenant = asked.tenant
                    LIMIT greatest(0, room_limits[room]) + 1000
                ) AS counted;
                IF standing < greatest(0, room_limits[room]) + 1000 THEN
                    shelves := shelves || room_shelves[room];
                    standings := standings || standing;
                END IF;
            END IF;
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
        IF asked.position = ANY (tellers) THEN
            telling := telling || asked.position;
        END IF;
        IF cardinality(new_ids) + cardinality(gone_ids) > 0 OR asked.position = ANY (tellers) THEN
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
            known := array_position(shelves, old.shelf);
            IF FOUND AND known IS NOT NULL THEN
                standings[known] := standings[known] - 1;
            END IF;
        END LOOP;

        FOREACH gone_id IN ARRAY gone_ids LOOP
            DELETE FROM documents AS d WHERE d.tenant = asked.tenant AND d.id = gone_id;
        END LOOP;

        INSERT INTO documents AS d (tenant, id, tag, body, places)
        SELECT asked.tenant, n.id, asked.tag, n.body, n.places::jsonb
        FROM unnest(new_ids, put_bodies[put_first : put_last], new_places) AS n (id, body, places)
        ON CONFLICT (tenant, id) DO UPDATE
            SET tag = excluded.tag, body = excluded.body, places = excluded.places;

        FOR added IN
            INSERT INTO places AS p (shelf, tenant, score, id)
            SELECT new.place ->> 0, asked.tenant, (new.place ->> 1)::bigint, n.id
            FROM unnest(new_ids, new_places) AS n (id, places)
                CROSS JOIN LATERAL jsonb_array_elements(n.places::jsonb) AS new (place)
            ON CONFLICT DO NOTHING
            RETURNING p.shelf
        LOOP
            known := array_position(shelves, added.shelf);
            IF known IS NOT NULL THEN
                standings[known] := standings[known] + 1;
            END IF;
        END LOOP;

        RETURN NEXT;
    END LOOP;

    -- Not even tried where nobody has something to tell: a server that is read-only refuses also to insert no rows.
    IF cardinality(telling) > 0 THEN
        INSERT INTO events (
            at_us, tenant, scope, key, record_id, kind, state, fence, tool, version, digest, expires_at, conversation,
            step, by_whom, note, times
        )
        SELECT
            e.at_us, e.tenant, e.scope, e.key, e.record_id, e.kind, e.state, e.fence, e.tool, e.version, e.digest,
            e.expires_at, e.conversation, e.step, e.by_whom, e.note, e.times
        FROM unnest(tellers, told) WITH ORDINALITY AS t (teller, event, position)
            CROSS JOIN LATERAL json_to_record(t.event::json) AS e (
                at_us bigint, tenant text, scope text, key text, record_id text, kind text, state text, fence bigint,
                tool text, version text, digest bytea, expires_at bigint, conversation text, step text, by_whom text,
                note text, times bigint
            )
        WHERE t.teller = ANY (telling)
        ORDER BY t.position;
    END IF;
END
$function$;
