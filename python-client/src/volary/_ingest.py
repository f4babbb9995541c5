"""Rows of Arrow, pandas, polars or files, as one stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args

import adbc_driver_manager as adbc
import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    import polars

IngestMode: TypeAlias = Literal["append", "create", "replace", "create_append"]
"""What becomes of the table: it is to be there, not to be there, replaced in one step, or made if it is not there."""

_Arrow: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader
_Files: TypeAlias = str | Path | Iterable[str | Path]
IngestData: TypeAlias = "_Arrow | pandas.DataFrame | polars.DataFrame | _Files"
"""Rows: in memory, as a stream, or in Parquet files (a file, a directory, or several of either)."""

_MODES = get_args(IngestMode)
_OPTION = "adbc.flight.sql.rpc.call_header.volary-ingest-"


def to_reader(data: IngestData) -> pa.RecordBatchReader:
    """The rows as a stream, which has one batch at least: drivers send nothing of a stream that has none."""
    reader = _reader_of(data)
    return pa.RecordBatchReader.from_batches(reader.schema, _at_least_one(reader))


def _reader_of(data: Any) -> pa.RecordBatchReader:
    if isinstance(data, pa.RecordBatchReader):
        return data
    if isinstance(data, pa.RecordBatch):
        data = pa.Table.from_batches([data])
    if isinstance(data, pa.Table):
        return data.to_reader()
    if isinstance(data, str | Path):
        return _reader_of_files([data])
    if type(data).__module__.split(".")[0] == "pandas":
        # An index is a column only where it has a name.
        named = any(name is not None for name in data.index.names)
        return pa.Table.from_pandas(data, preserve_index=named).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Iterable):
        return _reader_of_files(list(data))
    raise TypeError(f"rows are Arrow data, a pandas or polars DataFrame, or Parquet files, not {type(data).__name__}")


def _reader_of_files(paths: list[str | Path]) -> pa.RecordBatchReader:
    import pyarrow.dataset as ds

    for path in paths:
        if not isinstance(path, str | Path):
            raise TypeError(f"Parquet files are named by paths, not by {type(path).__name__}")
    # One directory may be partitioned; of several sources each is a file.
    source = str(paths[0]) if len(paths) == 1 else [str(path) for path in paths]
    return ds.dataset(source, format="parquet").scanner().to_reader()


def _at_least_one(reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
    is_empty = True
    for batch in reader:
        is_empty = False
        yield batch
    if is_empty:
        yield pa.RecordBatch.from_pylist([], schema=reader.schema)


def options(table: str, mode: IngestMode, layout: dict[str, str]) -> dict[str, str]:
    """The driver's options of a statement that ingests."""
    if mode not in _MODES:
        raise ValueError(f"mode is one of {', '.join(_MODES)}, not {mode!r}")
    for name, value in layout.items():
        if not value.isascii():
            raise ValueError(
                f"{name} is sent as a header, which is ASCII: {value!r}; create the table with SQL, and append"
            )
    return {
        adbc.StatementOptions.INGEST_TARGET_TABLE.value: table,
        adbc.StatementOptions.INGEST_MODE.value: f"adbc.ingest.mode.{mode}",
        **{_OPTION + name: value for name, value in layout.items()},
    }
