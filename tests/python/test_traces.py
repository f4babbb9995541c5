"""Tests distributed traces: what spans a statement has, whose trace they belong to, and that they never hurt."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from cluster import LocalCluster
from collector import Collector, Span, collector
from opentelemetry.sdk.trace import TracerProvider
from processes import Processes, run, until

pytestmark = pytest.mark.server

TRACE = "0af7651916cd43dd8448eb211c80319c"
CLIENTS_SPAN = "b7ad6b7169203331"


@pytest.fixture(scope="module")
def collected() -> Iterator[Collector]:
    with collector() as running:
        yield running


@pytest.fixture(scope="module")
def traced(collected: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    """A gateway and two workers, each a process, that trace all statements."""
    settings = {"VOLARY_TRACES__ENDPOINT": collected.uri}
    with Processes(tmp_path_factory.mktemp("traced"), settings) as cluster:
        cluster.add_worker()
        cluster.add_worker()
        cluster.sql("CREATE TABLE birds (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 8)")
        cluster.sql("INSERT INTO birds SELECT value, value FROM generate_series(1, 1000)")
        yield cluster


def query(cluster: Processes, sql: str, trace_id: str, flags: str = "01") -> list[tuple[object, ...]]:
    """Runs a query with ADBC, as a client whose span is `CLIENTS_SPAN` of the trace."""
    header = f"{DatabaseOptions.RPC_CALL_HEADER_PREFIX.value}traceparent"
    options = {header: f"00-{trace_id}-{CLIENTS_SPAN}-{flags}"}
    with dbapi.connect(cluster.gateway.uri, db_kwargs=options, autocommit=True) as connection:
        cursor = connection.cursor()
        cursor.execute(sql)
        rows = cursor.fetchall()
        cursor.close()
        return rows


def one(spans: list[Span], name: str) -> Span:
    (span,) = [span for span in spans if span.name == name]
    return span


def test_one_trace_shows_what_the_gateway_and_each_worker_did(traced: Processes, collected: Collector) -> None:
    assert len(query(traced, "SELECT k, v FROM birds WHERE v > 10 AND v <= 1000 ORDER BY v", TRACE)) == 990
    spans = collected.await_trace(TRACE, "statement", "stream", "encode", "gather", *2 * ["fragment", "SortExec"])
    by_id = {span.span_id: span for span in spans}

    def ancestors(span: Span) -> list[str]:
        names = []
        while span.parent_id in by_id:
            span = by_id[span.parent_id]
            names.append(span.name)
        assert span.parent_id == CLIENTS_SPAN
        return names

    # The driver prepares the statement first, and what that has parsed and planned is used when the statement runs.
    for name in ("parse", "plan", "optimize"):
        assert ancestors(one(spans, name)) == ["statement"], name
    assert ["run", "stream"] in [ancestors(span) for span in spans if span.name == "queue"]
    assert ancestors(one(spans, "encode")) == ["stream"]
    gather = one(spans, "gather")
    assert ancestors(gather) == ["run", "stream"]
    fragments = [span for span in spans if span.name == "fragment"]
    assert {span.attributes["worker"] for span in fragments} == {"w1", "w2"}
    assert {span.service for span in fragments} == {"volary-worker"}
    for fragment in fragments:
        assert ancestors(fragment) == ["gather", "run", "stream"]
        below = {span.name for span in spans if span.parent_id == fragment.span_id}
        assert {"queue", "bind", "DataSourceExec", "SortExec"} <= below
    sorted_rows = [span.attributes["rows"] for span in spans if span.name == "SortExec"]
    assert sum(sorted_rows) == 990
    assert all(span.start <= span.end for span in spans)
    # The id of the query leads from the trace to the logs and to system.query_log, and back.
    query_id = gather.attributes["query_id"]
    assert query_id == one(spans, "stream").attributes["query_id"]
    listed = f"SELECT trace_id FROM system.query_log WHERE query_id = '{query_id}'"
    until(lambda: traced.sql(listed) == [(TRACE,)], "the query log has the trace")


def test_a_write_is_traced_on_the_workers_that_store_its_rows(traced: Processes, collected: Collector) -> None:
    trace = TRACE[::-1]
    query(traced, "INSERT INTO birds SELECT value, 0 FROM generate_series(1, 100)", trace)
    spans = collected.await_trace(trace, "statement", "group", "write", "write")
    writes = [span for span in spans if span.name == "write"]
    assert {span.attributes["worker"] for span in writes} == {"w1", "w2"}
    # The driver prepares the statement first, which is a statement of its own.
    statements = {span.span_id for span in spans if span.name == "statement"}
    group = one(spans, "group")
    assert group.parent_id in statements
    assert {span.parent_id for span in writes} == {group.span_id}


def test_explain_analyze_names_the_query_of_its_trace(traced: Processes, collected: Collector) -> None:
    trace = "1" * 32
    rows = query(traced, "EXPLAIN ANALYZE SELECT count(*) FROM birds WHERE v > 3", trace)
    spans = collected.await_trace(trace, "statement", "gather", "fragment")
    assert one(spans, "gather").attributes["query_id"] in str(rows)


def test_the_python_client_continues_the_current_span(traced: Processes, collected: Collector) -> None:
    tracer = TracerProvider().get_tracer("birds")
    with traced.connect() as connection, tracer.start_as_current_span("program") as program:
        connection.sql("SELECT max(v) FROM birds").rows()
    context = program.get_span_context()
    spans = collected.await_trace(f"{context.trace_id:032x}", "statement", "stream")
    assert one(spans, "statement").parent_id == f"{context.span_id:016x}"


def test_a_statement_without_a_header_begins_a_trace_that_goes_on_when_its_rows_are_read(
    traced: Processes, collected: Collector
) -> None:
    sql = "SELECT sum(v) FROM birds WHERE v > 5"
    with dbapi.connect(traced.gateway.uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute(sql)
        cursor.fetchall()
    listed = f"SELECT trace_id FROM system.query_log WHERE statement = '{sql}'"
    ((trace,),) = until(lambda: traced.sql(listed), "the query log has the statement")
    spans = collected.await_trace(trace, "statement", "stream", "fragment")
    assert one(spans, "statement").parent_id == ""
    assert one(spans, "stream").parent_id == one(spans, "statement").span_id


def test_each_of_many_statements_is_traced(traced: Processes, collected: Collector) -> None:
    # The optimizer asks for each filter whether it would be logged, which must not make spans disappear.
    traces = [f"5{number:031x}" for number in range(30)]
    for number, trace in enumerate(traces):
        query(traced, f"SELECT sum(v) FROM birds WHERE v > {number}", trace)
    for trace in traces:
        collected.await_trace(trace, "statement", "stream", "fragment")


def test_a_trace_that_the_client_does_not_record_is_not_sent(traced: Processes, collected: Collector) -> None:
    silent, recorded = "2" * 32, "3" * 32
    query(traced, "SELECT count(*) FROM birds WHERE v > 1", silent, flags="00")
    query(traced, "SELECT count(*) FROM birds WHERE v > 1", recorded)
    collected.await_trace(recorded, "statement", "stream", "fragment")
    assert not [span for span in collected.spans() if span.trace_id == silent]


def test_a_header_that_is_not_valid_is_no_error(traced: Processes) -> None:
    assert query(traced, "SELECT 1", "no trace") == [(1,)]


def test_no_statement_is_traced_with_a_sample_of_zero_unless_its_client_asks(
    collected: Collector, tmp_path: Path
) -> None:
    settings = {
        "VOLARY_TRACES__ENDPOINT": collected.uri,
        "VOLARY_TRACES__SAMPLE": "0",
        "OTEL_SERVICE_NAME": "sampled",
        "OTEL_EXPORTER_OTLP_HEADERS": "x-tenant=birds",
    }
    with Processes(tmp_path, settings) as cluster:
        cluster.sql("SELECT 1")
        asked = "4" * 32
        query(cluster, "SELECT 2", asked)
        collected.await_trace(asked, "statement", "stream")
        assert {span.trace_id for span in collected.spans() if span.service == "sampled"} == {asked}
        assert collected.headers["x-tenant"] == "birds"


def test_a_collector_that_is_down_hurts_no_query_and_is_logged_once(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        settings = {"VOLARY_TRACES__ENDPOINT": f"http://127.0.0.1:{nobody.getsockname()[1]}"}
        with LocalCluster(tmp_path, workers=2, settings=settings) as cluster, cluster.connect() as connection:
            for number in range(100):
                assert connection.sql("SELECT ?", [number]).rows() == [(number,)]
            until(lambda: "traces cannot be sent" in cluster.log(), "the failure is logged")
            assert connection.sql("SELECT 1").rows() == [(1,)]
        assert cluster.log().count("traces cannot be sent") == 1


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"VOLARY_TRACES__ENDPOINT": "collector:4317"}, 'traces.endpoint is "collector:4317"; it must be a URL'),
        ({"VOLARY_TRACES__SAMPLE": "2"}, "traces.sample is 2; it must be from 0 to 1"),
        ({"VOLARY_TRACES__SAMPLING": "1"}, "there is no setting traces.sampling; [traces] has endpoint"),
    ],
)
def test_wrong_settings_are_refused_with_the_key(settings: dict[str, str], said: str) -> None:
    ended = run("volary", "config", settings=settings)
    assert ended.code == 2
    assert said in ended.err
