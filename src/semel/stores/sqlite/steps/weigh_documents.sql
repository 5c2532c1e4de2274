-- weigh documents: how many bytes the bodies of a tenant's documents have.
--
-- reads       semel_documents; of a body its length alone, which stands before it
-- parameters  tenant
-- answers     the number

SELECT coalesce(sum(length(body)), 0) FROM semel_documents WHERE tenant = ?
