-- drop a document: it is gone. Its rows of `places` are removed beside it.
--
-- writes      semel_documents
-- parameters  tenant, id
-- answers     nothing

DELETE FROM semel_documents WHERE tenant = ? AND id = ?
