-- drop a document: it is gone. Its rows of `places` are removed beside it.
--
-- writes      documents
-- parameters  tenant, id
-- answers     nothing

DELETE FROM documents WHERE tenant = ? AND id = ?
