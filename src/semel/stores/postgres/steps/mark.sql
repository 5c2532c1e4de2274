-- mark: which transaction this is.
--
-- answers     the mark of the tool's transaction that Semel began, nothing in another

SELECT current_setting('semel.call', true)
