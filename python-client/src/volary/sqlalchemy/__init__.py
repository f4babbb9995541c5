"""A dialect of SQLAlchemy 2: `create_engine("volary://user:password@host:7100")`.

The query part of the URL takes `tls=true`, `tls_ca`, `tls_certificate`, `tls_key`, `token` and `timeout`. Tables take
the options of CREATE TABLE … WITH:

    Table("orders", metadata, Column("id", BigInteger), volary_shard_key="id", volary_shards=64, volary_sort_key="day")

The dialect does not emulate features that Volary lacks. The gateway refuses UPDATE and DELETE, and the dialect refuses
defaults and indexes. For unique and check constraints, it warns that nothing checks them. It accepts primary and
foreign keys as descriptions of the model. If a table has no shard key and its primary key is one column, that column
becomes the shard key. Each statement commits by itself, so the rollback of a session does not undo what was flushed.
"""

from ._dialect import VolaryDialect

__all__ = ["VolaryDialect"]
