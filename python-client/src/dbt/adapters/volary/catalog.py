"""What `dbt docs generate` shows of tables and views."""

from __future__ import annotations

from collections.abc import Iterable

# `stats:…` are columns that dbt turns into the statistics of a table.
_QUERY = """
select
    c.table_catalog as table_database,
    c.table_schema as table_schema,
    c.table_name as table_name,
    case t.table_type when 'VIEW' then 'VIEW' else 'BASE TABLE' end as table_type,
    t.comment as table_comment,
    s.owner as table_owner,
    c.column_name as column_name,
    c.ordinal_position as column_index,
    c.data_type as column_type,
    c.comment as column_comment,
    'Rows' as "stats:rows:label",
    s.rows as "stats:rows:value",
    'The number of rows of the table' as "stats:rows:description",
    s.rows is not null as "stats:rows:include",
    'Size' as "stats:bytes:label",
    s.bytes as "stats:bytes:value",
    'The size of the table''s files, in bytes' as "stats:bytes:description",
    s.bytes is not null as "stats:bytes:include",
    'Shard key' as "stats:shard_key:label",
    s.shard_key as "stats:shard_key:value",
    'The column whose values say in which shard a row is' as "stats:shard_key:description",
    s.shard_key is not null as "stats:shard_key:include",
    'Sort key' as "stats:sort_key:label",
    s.sort_key as "stats:sort_key:value",
    'The columns by which the rows of a shard are sorted' as "stats:sort_key:description",
    s.sort_key is not null as "stats:sort_key:include",
    'Shards' as "stats:shards:label",
    s.shards as "stats:shards:value",
    'The number of shards of the table' as "stats:shards:description",
    s.shards is not null as "stats:shards:include"
from information_schema.columns as c
join information_schema.tables as t
    on t.table_schema = c.table_schema and t.table_name = c.table_name
left join system.tables as s
    on s.schema_name = c.table_schema and s.name = c.table_name
where {condition}
order by c.table_schema, c.table_name, c.ordinal_position
"""


def catalog_query(schemas: Iterable[str], names: Iterable[str] | None = None) -> str:
    """Returns the query of the columns of all tables and views in these schemas, or of those with these names."""
    condition = f"lower(c.table_schema) in ({_literals(schemas)})"
    if names is not None:
        condition += f" and lower(c.table_name) in ({_literals(names)})"
    return _QUERY.format(condition=condition)


def _literals(names: Iterable[str]) -> str:
    # No name is 'in ()', which is no SQL.
    escaped = (name.lower().replace("'", "''") for name in names if name is not None)
    return ", ".join(f"'{name}'" for name in escaped) or "''"
