"""Tests queries with answers that were determined by hand.

DataFusion alone answers most of these queries differently, so it cannot be the reference.
"""

import math

import pytest

import volary


@pytest.fixture(scope="module")
def connection(cluster):
    with cluster.connect() as connection:
        connection.sql(
            "CREATE TABLE h_facts (id BIGINT, k BIGINT, o BIGINT, v BIGINT, f DOUBLE) "
            "WITH (shard_key = 'k', shards = 4)"
        )
        connection.sql(
            "INSERT INTO h_facts VALUES (1, 1, 10, 5, 1.0), (2, 1, NULL, 6, NULL), (3, 2, 20, 7, 'NaN'), "
            "(4, 3, 30, 8, 2.5), (5, NULL, 10, 9, 3.0)"
        )
        connection.sql(
            "CREATE TABLE h_partners (id BIGINT, k BIGINT, o BIGINT, w BIGINT) WITH (shard_key = 'k', shards = 4)"
        )
        connection.sql("INSERT INTO h_partners VALUES (1, 1, 10, 1), (2, 1, NULL, 2), (3, 2, 20, 3), (4, 9, 40, 4)")
        connection.sql(
            "CREATE TABLE h_casts (id BIGINT, d DECIMAL(10, 2) NOT NULL, v BIGINT, t TIMESTAMP) "
            "WITH (shard_key = 'id', shards = 4)"
        )
        connection.sql(
            "INSERT INTO h_casts VALUES (1, 5.00, 3, '2024-01-01 11:00:00'), (2, 5.25, 7, '2024-01-01 12:00:00'), "
            "(3, 6.30, 3000000000, '2024-01-01 13:00:00'), (4, 7.10, NULL, NULL)"
        )
        yield connection
        connection.sql("DROP TABLE h_casts")
        connection.sql("DROP TABLE h_facts")
        connection.sql("DROP TABLE h_partners")


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("o NOT IN (SELECT o FROM h_partners)", []),
        ("o NOT IN (SELECT o FROM h_partners WHERE o IS NOT NULL)", [4]),
        ("NOT o IN (SELECT o FROM h_partners WHERE w > 2)", [1, 4, 5]),
        ("k NOT IN (SELECT k FROM h_partners)", [4]),
        ("k NOT IN (SELECT k FROM h_facts WHERE id > 3)", []),
        ("o NOT IN (SELECT p.o FROM h_partners p WHERE p.k = f.k)", [4, 5]),
        ("k NOT IN (SELECT p.k FROM h_partners p WHERE p.o = f.o)", [2, 4]),
        ("77 NOT IN (SELECT o FROM h_partners)", []),
        ("77 NOT IN (SELECT o FROM h_partners WHERE w = 3)", [1, 2, 3, 4, 5]),
        ("10 NOT IN (SELECT o FROM h_partners WHERE w = 1)", []),
        ("id < 3 OR o NOT IN (SELECT o FROM h_partners)", [1, 2]),
        ("id < 3 OR o NOT IN (SELECT o FROM h_partners WHERE w > 2)", [1, 2, 4, 5]),
        ("id < 0 OR o NOT IN (SELECT o FROM h_partners WHERE w > 100)", [1, 2, 3, 4, 5]),
        ("NOT (o IN (SELECT o FROM h_partners) OR id = 4)", []),
        ("NOT (o IN (SELECT o FROM h_partners WHERE w > 2) OR id = 4)", [1, 5]),
        ("(o NOT IN (SELECT o FROM h_partners) OR id = 5) IS NOT TRUE", [1, 2, 3, 4]),
        ("(o IN (SELECT o FROM h_partners) OR id = 4) IS FALSE", []),
        ("id < 3 OR o IN (SELECT o FROM h_partners)", [1, 2, 3, 5]),
    ],
)
def test_not_in_is_not_true_where_nulls_leave_it_open(connection, condition, ids):
    found = connection.sql(f"SELECT id FROM h_facts f WHERE {condition} ORDER BY id").rows()
    assert [row[0] for row in found] == ids


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        # NaN is the largest value, and it is outside the bounds that Parquet stores.
        ("SELECT id FROM h_facts WHERE f > 1e300", [(3,)]),
        ("SELECT id FROM h_facts WHERE f >= 3.0 ORDER BY id", [(3,), (5,)]),
        # A limit must not apply to the rows that a window counts. It must not apply to another column that has the same
        # name as the column of ORDER BY.
        ("SELECT k, count(*) OVER () AS n FROM h_facts GROUP BY k ORDER BY k LIMIT 1", [(1, 4)]),
        ("SELECT k FROM (SELECT -k AS k FROM h_facts GROUP BY k) t ORDER BY k LIMIT 2", [(-3,), (-2,)]),
        ("SELECT id, lag(v, -1) OVER (ORDER BY id) FROM h_facts ORDER BY id LIMIT 1", [(1, 6)]),
        (
            "SELECT id, lag(v, -1) OVER (ORDER BY id ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) FROM h_facts "
            "ORDER BY id LIMIT 1",
            [(1, 6)],
        ),
    ],
)
def test_what_is_pruned_or_limited_is_not_missed(connection, statement, expected):
    assert connection.sql(statement).rows() == expected


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        # These casts map different values to equal ones.
        ("CAST(d AS BIGINT) = 5", [1, 2]),
        ("CAST(d AS DECIMAL(10, 1)) = 5.3", [2]),
        ("CAST(d AS DECIMAL(10, 1)) IN (5.0, 7.1)", [1, 4]),
        ("CAST(d AS BIGINT) > 5", [3, 4]),
        ("CAST(d AS DECIMAL(12, 3)) = 5.250", [2]),
        # These casts give NULL for values that do not fit.
        ("try_cast(v AS SMALLINT) > 5", [2]),
        ("NOT try_cast(v AS SMALLINT) > 5", [1]),
        ("try_cast(v AS SMALLINT) IS NOT DISTINCT FROM NULL", [3, 4]),
        # A time without a time zone is in the time zone of the session.
        ("t < TIMESTAMPTZ '2024-01-01T12:00:00+01:00'", [1]),
        ("t = TIMESTAMPTZ '2024-01-01T12:00:00+01:00'", [2]),
    ],
)
@pytest.mark.usefixtures("connection")
def test_a_cast_is_compared_as_it_is_written(cluster, condition, ids):
    with cluster.connect() as session:
        session.sql("SET datafusion.execution.time_zone = '+01:00'")
        found = session.sql(f"SELECT id FROM h_casts WHERE {condition} ORDER BY id").rows()
        assert [row[0] for row in found] == ids
        outside = f"SELECT id FROM (SELECT *, ({condition}) AS c FROM h_casts) x WHERE c ORDER BY id"
        assert session.sql(outside).rows() == found


def test_a_cast_keeps_its_name_and_what_is_known_of_it(connection):
    table = connection.sql("SELECT CAST(d AS BIGINT), count(*) AS n FROM h_casts GROUP BY CAST(d AS BIGINT)").to_arrow()
    assert table.column_names == ["h_casts.d", "n"]
    assert not table.schema.field(0).nullable
    assert sorted(table.to_pydict()["n"]) == [1, 1, 2]


def test_the_largest_value_is_not_a_number(connection):
    ((largest,),) = connection.sql("SELECT max(f) FROM h_facts").rows()
    assert math.isnan(largest)


def test_an_aggregate_of_an_expression_sees_every_segment(connection):
    connection.sql("CREATE TABLE h_parts (id BIGINT, k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 1)")
    for rows in ("(1, 1, 50), (9, 1, 90)", "(5, 1, 3), (6, 1, 95)", "(4, 1, 2), (7, 1, 99)"):
        connection.sql(f"INSERT INTO h_parts VALUES {rows}")
    assert connection.sql("SELECT min(id), max(id), min(v + 1), max(v + 1) FROM h_parts").rows() == [(1, 9, 3, 100)]
    connection.sql("DROP TABLE h_parts")


@pytest.mark.parametrize(
    ("query", "what"),
    [
        ("SELECT id FROM h_facts WHERE (o IN (SELECT o FROM h_partners)) IS NULL", r"IN \(SELECT"),
        (
            "SELECT id FROM h_facts f WHERE EXISTS (SELECT count(*) FROM h_partners p WHERE p.k = f.k)",
            "without GROUP BY",
        ),
        ("SELECT id FROM h_facts f WHERE EXISTS (SELECT 1 FROM h_partners p WHERE p.k = f.k OFFSET 1)", "OFFSET"),
        (
            "SELECT id FROM h_facts f WHERE EXISTS "
            "(SELECT 1 FROM h_partners p WHERE p.k = f.k AND f.o NOT IN (SELECT o FROM h_partners))",
            "further out",
        ),
        ("SELECT o FROM h_facts INTERSECT ALL SELECT o FROM h_partners", "INTERSECT ALL"),
        ("SELECT count(*) FROM h_facts TABLESAMPLE BERNOULLI (1)", "TABLESAMPLE"),
        ("SELECT count(*) FROM (SELECT o FROM h_facts) x TABLESAMPLE (1 ROWS)", "TABLESAMPLE"),
        (
            "SELECT k, count(*) FROM (SELECT k, unnest(array_agg(v)) AS u FROM h_facts GROUP BY k) x GROUP BY k",
            "above unnest",
        ),
        ("SELECT lead(v, 2) IGNORE NULLS OVER (ORDER BY id) FROM h_facts", "IGNORE NULLS"),
    ],
)
def test_what_is_not_answered_rightly_is_refused(connection, query, what):
    with pytest.raises(volary.InvalidArgumentError, match=what):
        connection.sql(query).rows()
