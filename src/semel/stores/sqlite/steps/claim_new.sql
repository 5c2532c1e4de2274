-- claim_new: make a key ours that has no record; most claims are of this kind, and need to read nothing back.
--
-- writes      semel_records
-- parameters  as for claim
-- answers     nothing; the count of changes tells whether the key is ours. If not, claim follows in the transaction

INSERT INTO semel_records VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)
ON CONFLICT DO NOTHING
