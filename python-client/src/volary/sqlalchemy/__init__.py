"""A dialect of SQLAlchemy 2 and 1.4: `create_engine("volary://user:password@host:7100")`.

The query part of the URL takes `schema`, `tls=true`, `tls_ca`, `tls_certificate`, `tls_key`, `token` and `timeout`.
Tables take the options of CREATE TABLE … WITH:

    Table("orders", metadata, Column("id", BigInteger), volary_shard_key="id", volary_shards=64, volary_sort_key="day")

Defaults of the server, keys, checks, comments and schemas are declared and reflected. Checks are enforced, and keys are
not. If a table has no shard key and its primary key is one column, that column becomes the shard key.

The dialect does not emulate features that Volary lacks. The gateway refuses UPDATE and DELETE. The dialect refuses
whatever the server would have to generate: sequences, identities, computed columns and keys. It creates no indexes, and
warns about that. Each statement commits by itself, so the rollback of a session does not undo what was flushed.

`TIMESTAMP` and `TIME` have a `precision`, and `STRUCT` has fields. All other types are SQLAlchemy's.
"""

from ._dialect import VolaryDialect
from ._types import STRUCT, TIME, TIMESTAMP

__all__ = ["STRUCT", "TIME", "TIMESTAMP", "VolaryDialect"]
