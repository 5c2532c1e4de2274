-- commit_documents: any number of commits, each as a whole or not at all, in one transaction.
--
-- writes      documents, places, commits_seq, events
-- parameters  those of commit_documents_6, which says what it does: schema/0006.sql
-- answers     its rows

SELECT * FROM commit_documents_6(
    $1::bigint, $2::text[], $3::text[], $4::bigint[], $5::text[], $6::text[], $7::bigint[], $8::text[], $9::bytea[],
    $10::text[], $11::bigint[], $12::text[], $13::bigint[], $14::text[], $15::bigint[], $16::bigint[], $17::text[]
)
