"""Converts rows from Arrow, pandas, polars or files to one stream of record batches."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    import polars

_Arrow: TypeAlias = pa.Table | pa.RecordBatch | pa.RecordBatchReader
_Files: TypeAlias = str | Path | Iterable[str | Path]
IngestData: TypeAlias = "_Arrow | pandas.DataFrame | polars.DataFrame | _Files"
"""Rows in memory, a stream of rows, or Parquet files (a file, a directory, or several of either)."""


def to_reader(data: IngestData) -> pa.RecordBatchReader:
    """Returns the rows as a stream.

    Raises `TypeError` for data of an unsupported type, and the errors of reading files.
    """
    return _reader_of(data)


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
        # The index becomes a column only if it has a name.
        named = any(name is not None for name in data.index.names)
        return pa.Table.from_pandas(data, preserve_index=named).to_reader()
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Iterable):
        return _reader_of_files(list(data))
    raise TypeError(f"data is not Arrow data, a pandas or polars DataFrame, or Parquet files: {type(data).__name__}")


def _reader_of_files(paths: list[str | Path]) -> pa.RecordBatchReader:
    import pyarrow.dataset as ds

    for path in paths:
        if not isinstance(path, str | Path):
            raise TypeError(f"the path of a Parquet file must be str or Path, not {type(path).__name__}")
    # A single path may be a partitioned directory. Of several paths, each must be a file.
    source = str(paths[0]) if len(paths) == 1 else [str(path) for path in paths]
    return ds.dataset(source, format="parquet").scanner().to_reader()
