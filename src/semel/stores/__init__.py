"""Where records live: one protocol, several stores.

base       the protocol                             urls            from a URL to a store
memory     the specification, in one process        sqlite, redis, postgres  the others
batching   many callers, few commits                documents       runs, jobs, keys: one atomic commit
memory_documents  the specification of documents    document_bytes  their values as bytes
inquiry    queries as generators                    index_names     indexes that several rooms use
due        what time brings to documents            claimed_records  so that settlements read nothing back
"""
