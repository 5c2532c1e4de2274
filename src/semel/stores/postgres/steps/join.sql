-- join: the settings of greet, for the rest of a tool's transaction; what the tool itself did ran with the server's.
--
-- parameters  1 schema, 2 how long a statement may take, in milliseconds
-- answers     first the mark of the transaction, as in mark.sql; else nothing of interest
--
-- Temporary tables come last: one of the tool's would stand in for Semel's own of that name.

SELECT
    current_setting('semel.call', true),
    set_config('search_path', quote_ident($1::text) || ', pg_temp', true),
    set_config('statement_timeout', $2::text, true),
    set_config('lock_timeout', $2::text, true),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, true),
    set_config('enable_seqscan', 'off', true),
    set_config('enable_hashjoin', 'off', true),
    set_config('enable_mergejoin', 'off', true),
    set_config('enable_bitmapscan', 'off', true),
    set_config('enable_sort', 'off', true),
    set_config('max_parallel_workers_per_gather', '0', true),
    set_config('jit', 'off', true)
