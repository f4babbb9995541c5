"""What a backend writes: tables, views, databases and rows."""

from __future__ import annotations

import glob
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import ibis
import ibis.common.exceptions as com
import ibis.expr.operations as ops
import ibis.expr.types as ir
import pyarrow as pa
from ibis.backends import CanCreateDatabase, DirectPyArrowExampleLoader
from ibis.formats.pyarrow import PyArrowSchema
from ibis.util import gen_name, normalize_filenames

from .._connection import Connection
from .._flight_sql import IngestMode
from .._names import quoted
from . import _memtables
from ._results import conform, conform_batches

_ROWS = 1_000_000


class Tables(CanCreateDatabase, DirectPyArrowExampleLoader):
    """The methods of a backend that write."""

    con: Connection
    compile: Any
    compiler: Any
    table: Any
    _leftovers: _memtables.Leftovers
    _run_statement: Any
    _run_pre_execute_hooks: Any
    _get_columns_to_insert: Any
    get_schema: Any
    _database_of: Any

    @property
    def current_database(self) -> str:
        """The current schema of the session."""
        return str(self._run_statement("SELECT current_schema()").rows()[0][0])

    def create_table(
        self,
        name: str,
        /,
        obj: Any = None,
        *,
        schema: Any = None,
        database: str | tuple[str, str] | None = None,
        temp: bool = False,
        overwrite: bool = False,
        shard_key: str | None = None,
        shards: int | None = None,
        sort_key: str | Sequence[str] | None = None,
        reference: bool = False,
    ) -> ir.Table:
        """Creates a table.

        `obj` is an expression, which the server runs, or data in memory: Arrow, pandas or polars data, a dict or a
        list. `schema` gives the columns of a table without rows, or other types for those of `obj`. With `overwrite`,
        the table replaces one of the same name in one step. `shard_key`, `shards`, `sort_key` and `reference` are the
        options of CREATE TABLE … WITH. A table without a shard key keeps its rows in any shard.
        """
        if obj is None and schema is None:
            raise com.IbisInputError("create_table needs `obj` or `schema`")
        if temp:
            raise com.UnsupportedOperationError(
                "create_table creates no temporary tables; raw_sql('CREATE TEMPORARY TABLE …') does"
            )
        schema = None if schema is None else ibis.schema(schema)
        columns = [sort_key] if isinstance(sort_key, str) else sort_key
        layout = {
            "shard_key": shard_key,
            "shards": None if shards is None else str(shards),
            "sort_key": None if columns is None else ", ".join(columns),
            "reference": "true" if reference else None,
        }
        given = {option: value for option, value in layout.items() if value is not None}
        place = self._database_of(database)
        if isinstance(obj, ir.Expr) and not isinstance(obj.op(), ops.InMemoryTable):
            expression = obj.as_table() if schema is None else obj.as_table().cast(schema)
            self._create_as(place, name, expression, overwrite=overwrite, layout=given)
        else:
            mode: IngestMode = "replace" if overwrite else "create"
            self.con.ingest(
                name,
                _reader(obj, schema),
                schema=place,
                mode=mode,
                shard_key=shard_key,
                shards=shards,
                sort_key=columns,
                reference=reference,
            )
        return self.table(name, database=place)

    def _create_as(
        self, database: str | None, name: str, expression: Any, *, overwrite: bool, layout: dict[str, str]
    ) -> None:
        self._run_pre_execute_hooks(expression)
        # The server may compute a column in another type than the one that Ibis expects.
        typed = expression.cast(expression.schema())
        options = ", ".join(f"{option} = {_literal(value)}" for option, value in layout.items())
        statement = (
            f"CREATE {'OR REPLACE ' if overwrite else ''}TABLE {_name(database, name)}"
            f"{f' WITH ({options})' if options else ''} AS {self._casts(typed)}"
        )
        self._run_statement(statement)

    def _casts(self, expression: Any) -> str:
        """Returns a query that casts each column to the type that Ibis gives it, except those that SQL cannot name."""
        columns = []
        for name, dtype in expression.schema().items():
            column = quoted(name)
            if dtype.is_null() or dtype.is_interval() or _has_map(dtype):
                columns.append(column)
            else:
                sql = self.compiler.type_mapper.from_ibis(dtype).sql(self.compiler.dialect)
                columns.append(f"CAST({column} AS {sql}) AS {column}")
        return f"SELECT {', '.join(columns)} FROM ({self.compile(expression)}) AS t"

    def create_view(
        self, name: str, /, obj: Any, *, database: str | tuple[str, str] | None = None, overwrite: bool = False
    ) -> ir.Table:
        """Creates a view of an expression. A large table in memory cannot be a part of it."""
        for memtable in obj.op().find(ops.InMemoryTable):
            if not _memtables.is_inlined(memtable):
                raise com.UnsupportedOperationError(
                    "a view cannot read a large table in memory, which is dropped when the backend disconnects; create "
                    "a table of it first"
                )
        place = self._database_of(database)
        replace = "OR REPLACE " if overwrite else ""
        self._run_statement(f"CREATE {replace}VIEW {_name(place, name)} AS {self.compile(obj)}")
        return self.table(name, database=place)

    def drop_table(self, name: str, /, *, database: str | tuple[str, str] | None = None, force: bool = False) -> None:
        """Drops a table. With `force`, it is no error if there is none."""
        exists = "IF EXISTS " if force else ""
        self._run_statement(f"DROP TABLE {exists}{_name(self._database_of(database), name)}")

    def drop_view(self, name: str, /, *, database: str | tuple[str, str] | None = None, force: bool = False) -> None:
        """Drops a view. With `force`, it is no error if there is none."""
        exists = "IF EXISTS " if force else ""
        self._run_statement(f"DROP VIEW {exists}{_name(self._database_of(database), name)}")

    def create_database(self, name: str, /, *, catalog: str | None = None, force: bool = False) -> None:
        """Creates a schema, which Ibis calls a database. With `force`, it may exist already."""
        place = self._database_of((catalog, name) if catalog is not None else (name,))
        self._run_statement(f"CREATE SCHEMA {'IF NOT EXISTS ' if force else ''}{quoted(place)}")

    def drop_database(
        self, name: str, /, *, catalog: str | None = None, force: bool = False, cascade: bool = False
    ) -> None:
        """Drops a schema. With `force`, it is no error if there is none. With `cascade`, its tables are dropped too."""
        place = self._database_of((catalog, name) if catalog is not None else (name,))
        exists, everything = "IF EXISTS " if force else "", " CASCADE" if cascade else ""
        self._run_statement(f"DROP SCHEMA {exists}{quoted(place)}{everything}")

    def insert(
        self, name: str, /, obj: Any, *, database: str | tuple[str, str] | None = None, overwrite: bool = False
    ) -> None:
        """Appends rows to a table: those of an expression, or data in memory.

        Columns are matched by name. If the names differ, they are matched by position. `overwrite` is refused, because
        a table cannot be emptied: `create_table(…, overwrite=True)` replaces it.
        """
        if overwrite:
            raise com.UnsupportedOperationError(
                "Volary cannot delete the rows of a table; create_table(…, overwrite=True) replaces the table"
            )
        place = self._database_of(database)
        if isinstance(obj, ir.Expr) and not isinstance(obj.op(), ops.InMemoryTable):
            expression = obj.as_table()
            self._run_pre_execute_hooks(expression)
            columns = self._get_columns_to_insert(target=name, source=expression, db=place, catalog=None)
            names = ", ".join(map(quoted, columns))
            self._run_statement(f"INSERT INTO {_name(place, name)} ({names}) {self.compile(expression)}")
            return
        reader = _reader(obj, None)
        wanted = list(self.get_schema(name, database=place).names)
        if not set(reader.schema.names) <= set(wanted):
            if len(reader.schema.names) != len(wanted):
                raise com.IbisInputError(
                    f"the rows have the columns {', '.join(reader.schema.names)}, but the table {name} has "
                    f"{', '.join(wanted)}"
                )
            reader = _renamed(reader, wanted)
        self.con.ingest(name, reader, schema=place, mode="append")

    def upsert(self, name: str, /, obj: Any, on: str, *, database: Any = None) -> None:
        """Refuses, because rows of a table cannot be changed."""
        raise com.UnsupportedOperationError("Volary cannot change rows of a table, only append rows or replace it")

    def truncate_table(self, name: str, /, *, database: Any = None) -> None:
        """Removes all rows of a table."""
        self._run_statement(f"TRUNCATE TABLE {_name(self._database_of(database), name)}")

    def rename_table(self, old_name: str, new_name: str) -> None:
        """Refuses, because tables keep their names."""
        raise com.UnsupportedOperationError("Volary cannot rename a table; copy it with create_table")

    def read_parquet(
        self, path: str | Path | Sequence[str | Path], /, *, table_name: str | None = None, **options: Any
    ) -> ir.Table:
        """Sends Parquet files of this machine to a new table.

        `path` is a file, a directory, a pattern such as `*.parquet`, or several files. Without `table_name`, the table
        gets a generated name. The other arguments are the options of `create_table`.
        """
        return self.create_table(table_name or gen_name("read_parquet"), _dataset(path, "parquet"), **options)

    def read_csv(
        self, path: str | Path | Sequence[str | Path], /, *, table_name: str | None = None, **options: Any
    ) -> ir.Table:
        """Sends CSV files of this machine to a new table. The arguments are those of `read_parquet`."""
        return self.create_table(table_name or gen_name("read_csv"), _dataset(path, "csv"), **options)

    def read_json(
        self, path: str | Path | Sequence[str | Path], /, *, table_name: str | None = None, **options: Any
    ) -> ir.Table:
        """Sends files of this machine with a JSON object in each line to a new table. The arguments are those of
        `read_parquet`.
        """
        return self.create_table(table_name or gen_name("read_json"), _dataset(path, "json"), **options)

    def _register_in_memory_table(self, op: Any) -> None:
        """Sends a table in memory to the server, unless it is written into the statements that read it."""
        if _memtables.is_inlined(op):
            return
        place = self.current_database
        self.con.ingest(op.name, _memtables.arrow_of(op), schema=place, mode="create")
        table = _memtables.name_of(place, op.name)
        self._leftovers.keep(table)
        weakref.finalize(op, self._leftovers.is_unneeded, table).atexit = False

    def _make_memtable_finalizer(self, name: str) -> None:
        """Returns None, because `Leftovers` drops the tables."""

    def _create_cached_table(self, name: str, expr: Any) -> ir.Table:
        table = self.create_table(name, expr, schema=expr.schema(), database=self.current_database)
        self._leftovers.keep(_memtables.name_of(table.op().namespace.database, name))
        return table

    def _drop_cached_table(self, name: str) -> None:
        """Notes that a table is not needed any more. A garbage collection may call this."""
        self._leftovers.is_unneeded_by_name(name)


def _reader(obj: Any, schema: Any) -> pa.RecordBatchReader:
    """Returns data in memory as a stream of rows, with the types of `schema` if that is given.

    A table without rows is one that has a schema only.
    """
    if obj is None:
        empty: pa.Table = PyArrowSchema.from_ibis(schema).empty_table()
        return empty.to_reader()
    if isinstance(obj, pa.RecordBatchReader):
        reader: pa.RecordBatchReader = obj
        return reader if schema is None else _typed(obj, PyArrowSchema.from_ibis(schema))
    if type(obj).__module__.startswith("polars") and hasattr(obj, "collect"):
        obj = obj.collect()
    if hasattr(obj, "scanner"):  # a dataset of Arrow, whose module is imported only if it is used
        return _reader(obj.scanner().to_reader(), schema)
    if isinstance(obj, pa.RecordBatch):
        obj = pa.Table.from_batches([obj])
    if not isinstance(obj, ir.Table):
        obj = ibis.memtable(obj)
    rows: pa.Table = _memtables.arrow_of(obj.op())
    if schema is None:
        return rows.to_reader()
    wanted = PyArrowSchema.from_ibis(schema)
    if set(wanted.names) == set(rows.schema.names):
        rows = rows.select(wanted.names)
    return conform(rows, wanted).to_reader()


def _typed(reader: pa.RecordBatchReader, schema: pa.Schema) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(schema, conform_batches(iter(reader), schema, _ROWS))


def _renamed(reader: pa.RecordBatchReader, names: Sequence[str]) -> pa.RecordBatchReader:
    schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
    return _typed(reader, schema)


def _dataset(path: Any, format: str) -> pa.RecordBatchReader:
    import pyarrow.dataset as ds

    found: list[str] = []
    for name in normalize_filenames(path):
        name = name.removeprefix(f"{format}://")
        found += sorted(glob.glob(name)) if "*" in name and not Path(name).exists() else [name]
    # A single path may be a directory. Of several paths, each must be a file.
    dataset: Any = ds.dataset(found[0] if len(found) == 1 else found, format=format)  # type: ignore[call-overload]
    return cast(pa.RecordBatchReader, dataset.scanner().to_reader())


def _has_map(dtype: Any) -> bool:
    if dtype.is_map():
        return True
    if dtype.is_array():
        return _has_map(dtype.value_type)
    return dtype.is_struct() and any(_has_map(field) for field in dtype.types)


def _name(database: str | None, table: str) -> str:
    return quoted(table) if database is None else f"{quoted(database)}.{quoted(table)}"


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
