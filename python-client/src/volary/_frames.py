"""Converts Arrow tables to the data frames of packages that are not always installed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

if TYPE_CHECKING:
    import pandas
    import polars


def to_pandas(table: pa.Table) -> pandas.DataFrame:
    """Returns the table as a pandas DataFrame. Raises `ImportError` if pandas is not installed."""
    try:
        import pandas  # noqa: F401  # pyarrow's own error does not say what to install
    except ImportError as error:
        raise _not_installed("pandas") from error
    return table.to_pandas()


def to_polars(table: pa.Table) -> polars.DataFrame:
    """Returns the table as a polars DataFrame. Raises `ImportError` if polars is not installed."""
    try:
        import polars
    except ImportError as error:
        raise _not_installed("polars") from error
    return polars.DataFrame(table)


def _not_installed(package: str) -> ImportError:
    return ImportError(
        f"a {package} DataFrame needs the package {package}: pip install 'volary[{package}]'", name=package
    )
