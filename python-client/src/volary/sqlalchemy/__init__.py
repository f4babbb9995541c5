"""A dialect of SQLAlchemy 2: `create_engine("volary://user:password@host:7100")`.

The URL takes `tls=true`, `tls_ca`, `tls_certificate`, `tls_key`, `token` and `timeout` as its query. Tables take the
options of CREATE TABLE … WITH:

    Table("orders", metadata, Column("id", BigInteger), volary_shard_key="id", volary_shards=64, volary_sort_key="day")

What Volary does not have is not pretended: UPDATE and DELETE are refused by the gateway, defaults and indexes by the
dialect; of unique and check constraints it warns that nothing checks them. Primary and foreign keys are taken as what
they say of the model; a table without a shard key takes its primary key for one, if that is one column. Each statement
commits by itself, so that a session's rollback takes back nothing that was flushed.
"""

from ._dialect import VolaryDialect

__all__ = ["VolaryDialect"]
