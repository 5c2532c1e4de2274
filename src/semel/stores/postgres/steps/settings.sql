-- settings: what decides whether an acknowledged write survives, and what a person should know.
--
-- answers     name, value

SELECT name, setting FROM pg_settings
WHERE name IN (
    'fsync', 'full_page_writes', 'synchronous_commit', 'synchronous_standby_names', 'server_version',
    'server_version_num', 'max_connections', 'data_checksums', 'default_transaction_read_only', 'wal_level'
)
UNION ALL
SELECT 'in_recovery', pg_is_in_recovery()::text
