"""Tests all 22 TPC-H queries with several cluster sizes and shardings. The rows must be those of DataFusion in one
process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from cluster import LocalCluster
from processes import binary
from reference import assert_same_rows, ordered_by

import volary

QUERIES = Path(__file__).resolve().parents[1] / "queries" / "tpch"
SCALE = os.environ.get("VOLARY_TPCH_SCALE", "0.05")
TABLES = ("region", "nation", "supplier", "customer", "part", "partsupp", "orders", "lineitem")


@pytest.fixture(scope="session")
def tpch_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a Parquet file for each table."""
    data = tmp_path_factory.mktemp("tpch")
    subprocess.run([binary("volary"), "tpch", "--scale", SCALE, "--out", data], check=True)
    return data


@pytest.fixture(scope="session")
def tpch_expected(tpch_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a Parquet file for each query."""
    out = tmp_path_factory.mktemp("tpch-expected")
    reference = binary("volary-reference")
    subprocess.run([reference, "--sql-dir", QUERIES, "--data", tpch_data, "--out", out], check=True)
    return out


# The module scope and the parameter make pytest run all queries of one cluster before the next one, so each loads once.
@pytest.fixture(
    scope="module",
    params=[(workers, schema) for schema in ("schema", "schema_bad_keys") for workers in (1, 3, 4)],
    ids=lambda param: f"{param[0]} workers, {param[1]}",
)
def tpch_cluster(
    request: pytest.FixtureRequest, tpch_data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[volary.Connection]:
    """A connection to a cluster with the tables."""
    workers, schema = request.param
    directory = tmp_path_factory.mktemp("tpch-cluster")
    with LocalCluster(directory, workers, allow_roots=[tpch_data]) as cluster, cluster.connect() as connection:
        for statement in (QUERIES / f"{schema}.sql").read_text().split(";"):
            if statement.strip():
                connection.sql(statement)
        for table in TABLES:
            file = tpch_data / f"{table}.parquet"
            rows = connection.sql(f"COPY {table} FROM '{file}'").rows_affected
            assert rows == pq.read_metadata(file).num_rows
        yield connection


@pytest.mark.parametrize("name", [f"q{number:02}" for number in range(1, 23)])
def test_a_query_finds_what_datafusion_alone_finds(tpch_cluster, tpch_expected, name):
    query = (QUERIES / f"{name}.sql").read_text()
    expected = pq.read_table(tpch_expected / f"{name}.parquet")
    actual = tpch_cluster.sql(query).to_arrow()
    assert expected.num_rows > 0, "a query without rows tests nothing"
    # DataFusion alone has other names for expressions.
    expected = expected.rename_columns(actual.column_names)
    assert_same_rows(actual, expected, ordered_by(query, actual.schema))


def test_every_row_is_there(tpch_cluster, tpch_data):
    for table in TABLES:
        expected = pq.read_metadata(tpch_data / f"{table}.parquet").num_rows
        assert tpch_cluster.sql(f"SELECT count(*) FROM {table}").rows() == [(expected,)]
