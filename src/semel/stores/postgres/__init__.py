"""The store in a PostgreSQL database.

store        what callers see                       commands, queries   values as statements
                                                    documents           the same for documents
dispatch     many callers, few statements           rows                rows as values
pool, wire   connections                            packing             values as PostgreSQL's bytes
listener     what other processes settle            schema              making and migrating the schema
steps/*.sql  one atomic step each                   trouble             errors
transaction  a tool's effect in the same commit     options             what the URL says
parts/*.sql  what several steps have in common      findings            what a person should know
lent         the connection that a tool has         sql_text            what would end its transaction
statements   the .sql files as text                 schema/*.sql        the schema and its migrations
"""

from semel.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
