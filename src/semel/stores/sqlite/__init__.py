"""The store in one SQLite file.

store        what callers see                    commands, queries   values as statements
writer       group commit                        rows                rows as values
connection   opening, waiting, reading           schema              making and migrating the file
watcher      what other processes settle         forks, trouble      forks; errors
transaction  a tool's effect in the same commit  lent                the connection that it has
documents    the same for documents              file_identity       is it still the file that was opened
findings     what a person should know           statements          the .sql files as text
steps/*.sql  one atomic step each                schema/*.sql        the schema and its migrations
"""

from semel.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]
