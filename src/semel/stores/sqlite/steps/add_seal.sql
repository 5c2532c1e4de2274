-- add_seal: write the next seal.
--
-- writes      semel_seals
-- parameters  the seal's columns
-- answers     nothing; fails if another process sealed meanwhile, which one write transaction rules out

INSERT INTO semel_seals VALUES (?, ?, ?, ?, ?, ?)
