-- path_to_lend: where a tool finds its tables: as the server has it for this user, without Semel's schema.
--
-- parameters  1 schema
-- answers     the search path to set, or NULL if Semel's schema is not on it

SELECT CASE WHEN $1::name = ANY (current_schemas(false)) THEN coalesce(
    (
        SELECT string_agg(quote_ident(path.schema), ', ' ORDER BY path.place)
        FROM unnest(current_schemas(false)) WITH ORDINALITY AS path (schema, place)
        WHERE path.schema <> $1::name
    ),
    '""'
) END
