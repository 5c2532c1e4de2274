-- weigh_documents: how many bytes the bodies of a tenant's documents have.
--
-- reads       documents; of a body its length alone, which is known without reading it
-- parameters  1 tenant
-- answers     how many

SELECT coalesce(sum(octet_length(body)), 0)::bigint FROM documents WHERE tenant = $1::text
