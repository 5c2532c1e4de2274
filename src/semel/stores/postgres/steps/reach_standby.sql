-- reach_standby: all that can be seen by now is on the synchronous standby, if the server has one.
--
-- writes      an empty message into the server's log, so that its commit waits for the standby like any other
-- answers     nothing of interest
--
-- A server that crashes while a commit waits comes back with the commit done. What reads it, or is asked again and finds
-- it, writes nothing and so waits for nobody: without this it would be acknowledged, and a failover would lose it.

SELECT CASE WHEN current_setting('synchronous_standby_names') <> '' AND NOT pg_is_in_recovery()
    THEN pg_logical_emit_message(true, 'semel', '') END::text
