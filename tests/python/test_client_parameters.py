"""Tests the values for `?`. They must be the arrays that pyarrow makes, without the imports that pyarrow needs for
that.
"""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cluster import LocalCluster
from processes import PATIENCE_SECONDS

from volary import InvalidArgumentError
from volary._parameters import to_batches


class Colour(StrEnum):
    GREEN = "green"


class Size(IntEnum):
    SMALL = 1


VALUES: list[Any] = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    0.1,
    float("inf"),
    "",
    "kākā",
    "a" * 100_000,
    b"",
    b"\x00\xff",
    date(1970, 1, 1),
    date.min,
    date.max,
    datetime(2026, 1, 2, 3, 4, 5, 678901),
    datetime(1969, 12, 31, 23, 59, 59, 999999),
    datetime.min,
    datetime.max,
    datetime(2026, 1, 2, tzinfo=UTC),
    timedelta(seconds=1),
    Decimal("1.50"),
    [1, 2],
    {"a": 1},
    Colour.GREEN,
    Size.SMALL,
    np.int16(3),
    np.float32(0.5),
    np.datetime64("2026-01-02T03:04:05.678901"),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: f"{type(value).__name__} {value!r}"[:40])
def test_a_value_is_the_array_that_pyarrow_makes_of_it(value: Any) -> None:
    (batch,) = to_batches([value])
    expected = pa.array([value])
    assert batch.column(0).type == expected.type
    assert batch.column(0).equals(expected)
    batch.validate(full=True)


@pytest.mark.parametrize("value", [2**63, object(), "\ud800"], ids=["a large number", "an object", "half a character"])
def test_a_value_without_an_arrow_type_is_named_by_its_position(value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match="parameter 2 "):
        to_batches([1, value])


@pytest.mark.server
def test_the_first_query_of_a_process_does_not_import_pandas(cluster: LocalCluster) -> None:
    program = (
        "import sys; from datetime import date; import volary\n"
        f"connection = volary.connect({cluster.uri!r})\n"
        "rows = connection.sql('SELECT ? + 1, ?, ?, ?', [1, 'kea', 0.5, date(2026, 1, 2)]).rows()\n"
        "print(rows, 'pandas' in sys.modules)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=True
    )
    assert ended.stdout == "[(2, 'kea', 0.5, datetime.date(2026, 1, 2))] False\n"
