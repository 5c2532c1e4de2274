-- greet: what every connection settles first.
--
-- parameters  1 schema, 2 how long a statement may take, in milliseconds
-- answers     nothing of interest
--
-- The steps judge rows at READ COMMITTED. Acknowledged writes are on disk, whatever the server's default is.
-- Plans follow the keys and are made once: a plan made while a table was small must not read the whole of it later.

SELECT
    set_config('search_path', quote_ident($1::text), false),
    set_config('statement_timeout', $2::text, false),
    set_config('lock_timeout', $2::text, false),
    set_config('idle_in_transaction_session_timeout', '60000', false),
    set_config('default_transaction_isolation', 'read committed', false),
    set_config('synchronous_commit', CASE current_setting('synchronous_commit')
        WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false),
    set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false),
    set_config('enable_hashjoin', 'off', false),
    set_config('enable_mergejoin', 'off', false),
    set_config('enable_bitmapscan', 'off', false),
    set_config('enable_sort', 'off', false),
    set_config('max_parallel_workers_per_gather', '0', false),
    set_config('jit', 'off', false)
