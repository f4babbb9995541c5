"""Tests values of functions that would be larger than a node. They must be refused before they are made."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from processes import Processes

import volary

pytestmark = pytest.mark.server

CLIENTS = 4
# The limit is small enough that several values below it fit into the memory of the nodes.
MAX_VALUE = "64MiB"
# A batch with large values in all of its rows needs more address space than a node may add.
MORE_ADDRESS_SPACE = 3 << 30
ROWS = 4500
# The gateway computes constants while it plans a statement. A worker computes from the values of a table.
ON_GATEWAY, ON_WORKER = "2000000000", "(k * 0 + 2000000000)"
LARGE = [
    "length(repeat('x', {count}))",
    "length(lpad('x', {count}))",
    "length(rpad('x', {count}, 'é'))",
    "cardinality(range(0, {count}))",
    "cardinality(generate_series({count}, 0, -1))",
    "cardinality(array_repeat('x', {count}))",
    "cardinality(array_resize([1], {count}, 7))",
    "length(array_to_string(range(0, {count} / 1000), repeat('-', 1000)))",
    "length(replace(repeat('a', {count} / 10000), 'a', repeat('b', {count} / 10000)))",
    "length(regexp_replace(repeat('a', {count} / 10000), 'a', repeat('b', {count} / 10000), 'g'))",
    "length(repeat('a', {count} / 50) || repeat('b', {count} / 50))",
    "length(concat(repeat('a', {count} / 50), repeat('b', {count} / 50)))",
]


def create_nests(processes: Processes) -> None:
    """Creates a table with three rows on one worker."""
    processes.sql("CREATE TABLE nests (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
    processes.sql("INSERT INTO nests VALUES (1), (2), (3)")


@pytest.fixture(scope="module")
def small_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A gateway and a worker with little address space, and a table with three rows."""
    settings = {"VOLARY_GATEWAY__QUERY__MAX_VALUE": MAX_VALUE, "VOLARY_WORKER__EXECUTION__MAX_VALUE": MAX_VALUE}
    with Processes(tmp_path_factory.mktemp("small"), settings) as processes:
        for node in (processes.gateway, processes.add_worker()):
            node.running().limit_growth(MORE_ADDRESS_SPACE)
        create_nests(processes)
        yield processes


@pytest.mark.parametrize("made", LARGE)
@pytest.mark.parametrize(("count", "source"), [(ON_GATEWAY, ""), (ON_WORKER, " FROM nests WHERE k > 0")])
def test_what_is_too_large_is_refused_and_nobody_ends(small_nodes, made, count, source):
    query = f"SELECT {made.format(count=count)} AS made{source}"

    def refusal(_: int) -> str:
        with pytest.raises(volary.ResourceExhaustedError) as caught:
            small_nodes.sql(query)
        return str(caught.value)

    with ThreadPoolExecutor(CLIENTS) as clients:
        for said in clients.map(refusal, range(CLIENTS)):
            # Values below the limit are made first. They may already have taken the memory of the process.
            if "the node's process uses" not in said:
                assert "would make a value of" in said
                assert ("worker.execution.max_value" if source else "gateway.query.max_value") in said
    assert small_nodes.sql("SELECT count(*) FROM nests WHERE k > 0") == [(3,)]


@pytest.fixture(scope="module")
def many(small_nodes: Processes) -> str:
    """The name of a table with the numbers from 1 to 4,500."""
    small_nodes.sql("CREATE TABLE many (k BIGINT NOT NULL) WITH (shard_key = 'k', shards = 1)")
    small_nodes.sql(f"INSERT INTO many SELECT value FROM generate_series(1, {ROWS})")
    return "many"


def test_a_large_constant_stands_beside_few_rows_at_once(small_nodes, many):
    """A list of 100,000 numbers in each row of a batch needs more memory than the worker has."""
    removed = f"SELECT min(cardinality(array_remove(range(0, 100000), k))), count(*) FROM {many} WHERE k > 0"
    assert small_nodes.sql(removed) == [(99_999, ROWS)]


@pytest.mark.parametrize("rows", ["many WHERE k > 0", f"generate_series(1, {ROWS}) t(k)"], ids=["worker", "gateway"])
def test_rows_with_large_values_are_made_few_at_once(small_nodes, many, rows):
    """All rows of a batch together would have 360 MB or 4.5 GB, but only 256 MiB are allowed at once."""
    with small_nodes.connect() as connection:
        batches = connection.sql(f"SELECT repeat('ab', 40000 + k % 2) AS v FROM {rows}").batches()
        lengths = [len(value) for batch in batches for value in batch.column(0).to_pylist()]
    assert sorted(lengths) == [80_000] * (ROWS // 2) + [80_002] * (ROWS // 2)
    source = rows.replace(" WHERE k > 0", "")
    for query, expected in {
        f"SELECT sum(length(repeat('x', 1000000 + k % 2))) FROM {rows}": ROWS * 1_000_000 + ROWS // 2,
        f"SELECT count(*) FROM {source} WHERE length(repeat('x', 1000000 + k)) % 3 = 0": ROWS // 3,
    }.items():
        assert small_nodes.sql(query) == [(expected,)]


@pytest.mark.parametrize("rows", ["many", f"generate_series(1, {ROWS}) t(k)"], ids=["worker", "gateway"])
def test_joins_make_few_copies_of_a_large_value_at_once_or_refuse_it(small_nodes, many, rows):
    """A value of one megabyte in each row of a batch needs more memory than a node has."""
    large = "(SELECT repeat('x', 1000000) AS v, 7 AS n) a"
    assert small_nodes.sql(f"SELECT max(length(v || k)), count(*) FROM {large}, {rows}") == [(1_000_004, ROWS)]
    for copied in (
        f"SELECT max(length(v || k)) FROM {large} JOIN {rows} ON a.n + 0.5 < k",
        f"SELECT max(length(v || k)) FROM {rows} LEFT JOIN {large} ON a.n = k % 10",
        "SELECT sum(e * 0 + length(v)) FROM (SELECT v, unnest(range(0, 1000000)) AS e FROM "
        f"(SELECT repeat('x', 1000 + k) AS v FROM {rows}))",
    ):
        with pytest.raises(volary.ResourceExhaustedError, match="may copy a row of"):
            small_nodes.sql(copied)


def test_what_would_compute_for_hours_is_refused(small_nodes, many):
    """The gateway refuses the statements while it plans them, or the worker refuses them before the first row."""
    texts = "repeat('x', 100000 + {0}), repeat('y', 100000 + {0})"
    for source, number in ((many, "k"), ("generate_series(1, 2) t(k)", "k"), ("(VALUES (1)) t(k)", "0")):
        arguments = texts.format(number)
        with pytest.raises(volary.ResourceExhaustedError, match="steps for one value"):
            small_nodes.sql(f"SELECT max(levenshtein({arguments})) FROM {source}")
        digits = f"repeat('0123456789', 200000 + {number})"
        for search in (
            f"regexp_count({digits}, '.*[^0-9]|[0-9]')",
            f"length(regexp_replace({digits}, '([0-9]+x)?', '-', 'g'))",
            f"CASE WHEN {digits} ~ '[13][0-9]{{500}}[a-z]' THEN 1 END",
            f"CASE WHEN {digits} NOT LIKE '%1{'_' * 500}7' THEN 1 END",
        ):
            with pytest.raises(volary.ResourceExhaustedError, match="steps for one value"):
                small_nodes.sql(f"SELECT max({search}) FROM {source}")
    digits = "repeat('0123456789', 200000 + k * 0)"
    found = f"min(regexp_count({digits}, '[0-9]5')), bool_and({digits} ~ '\\d+x?$')"
    assert small_nodes.sql(f"SELECT {found} FROM {many} WHERE k <= 2") == [(200_000, True)]
    short = "repeat('x', 1000 + k % 2), repeat('y', 1000)"
    assert small_nodes.sql(f"SELECT sum(levenshtein({short})) FROM {many} WHERE k <= 100") == [(100_050,)]


@pytest.mark.parametrize("aggregate", ["string_agg(repeat('x', 100000), ',')", "array_agg(repeat('x', 100000))"])
def test_what_collects_too_much_is_refused(small_nodes, aggregate):
    source = "generate_series(1, 2000) t(k)"
    with pytest.raises(volary.ResourceExhaustedError, match=r"_agg\(…\) would make a value of"):
        small_nodes.sql(f"SELECT {aggregate} FROM {source}")


def test_the_largest_value_is_a_setting(tmp_path):
    settings = {"VOLARY_GATEWAY__QUERY__MAX_VALUE": "1KiB", "VOLARY_WORKER__EXECUTION__MAX_VALUE": "2KiB"}
    with Processes(tmp_path, settings) as processes:
        processes.add_worker()
        processes.sql("CREATE TABLE nests AS SELECT 1 AS k")
        assert processes.sql("SELECT length(repeat('x', 1024))") == [(1024,)]
        assert processes.sql("SELECT length(repeat('x', 2048 * k)) FROM nests WHERE k > 0") == [(2048,)]
        for query in ("SELECT repeat('x', 1025)", "SELECT repeat('x', 2049 * k) FROM nests WHERE k > 0"):
            with pytest.raises(volary.ResourceExhaustedError, match="max_value"):
                processes.sql(query)


def test_the_process_has_no_more_memory_than_it_may(tmp_path):
    """Each value is below the limit for one value, but all of them together are more than the node has."""
    allowed = (256 + 512) << 20
    columns = 12
    values = ", ".join(f"repeat('{chr(ord('a') + column)}', {{length}}) AS v{column}" for column in range(columns))
    with Processes(tmp_path, {"VOLARY_GATEWAY__QUERY__MAX_VALUE": "256MiB"}) as processes:
        worker = processes.add_worker()
        create_nests(processes)
        for node, query in {
            processes.gateway: f"SELECT {values.format(length=150_000_000)}",
            worker: f"SELECT {values.format(length='k * 0 + 150000000')} FROM nests WHERE k = 1",
        }.items():

            def refusal(_: int, query: str = query) -> str:
                with pytest.raises(volary.ResourceExhaustedError) as caught:
                    processes.sql(query)
                return str(caught.value)

            with ThreadPoolExecutor(CLIENTS) as clients:
                for said in clients.map(refusal, range(CLIENTS)):
                    assert "memory" in said, said
            # Memory that was freed but not yet returned is counted in addition to what is in use.
            assert node.running().peak_memory_bytes() < 3 * allowed // 2
            assert processes.sql("SELECT count(*) FROM nests WHERE k > 0") == [(3,)]


def test_rows_that_there_is_no_memory_to_send_are_refused(tmp_path):
    """The rows themselves are within the limits of values and of the process, but the copies for a message are not."""
    settings = {
        "VOLARY_GATEWAY__MEMORY__LIMIT": "128MiB",
        "VOLARY_GATEWAY__QUERY__MAX_VALUE": "256MiB",
        "VOLARY_WORKER__MEMORY__LIMIT": "128MiB",
        "VOLARY_WORKER__EXECUTION__MAX_VALUE": "256MiB",
    }
    made = ", ".join(f"repeat('{letter}', {{length}}) AS {letter}" for letter in "xyz")
    with Processes(tmp_path, settings) as processes:
        worker = processes.add_worker()
        create_nests(processes)
        for node, query in {
            processes.gateway: f"SELECT {made.format(length=80_000_000)}",
            worker: f"SELECT {made.format(length='k * 0 + 80000000')} FROM nests WHERE k = 1",
        }.items():
            with pytest.raises(volary.ResourceExhaustedError, match="sending 1 rows would take"):
                processes.sql(query)
            assert node.running().peak_memory_bytes() < 1 << 30
        assert processes.sql("SELECT count(*) FROM nests WHERE k > 0") == [(3,)]
