"""Tests the listener for monitoring systems: metrics, whether the process is alive, and whether it is ready."""

from __future__ import annotations

import re
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest
from certificates import Certificates
from cluster import LocalCluster
from processes import PATIENCE_SECONDS, Process, Processes, run, until
from scrape import Operations

import volary

pytestmark = pytest.mark.server

LISTENS = {"VOLARY_OPERATIONS__LISTEN": "127.0.0.1:0"}
PAGE = Path(__file__).parents[2] / "docs" / "metrics.md"


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """A cluster with two workers in one process, which answers monitoring systems."""
    with LocalCluster(tmp_path_factory.mktemp("observed"), workers=2, settings=LISTENS) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def operations(observed: LocalCluster) -> Operations:
    return Operations(observed.output())


def documented() -> dict[str, tuple[str, list[str]]]:
    """Returns the type and the labels of each metric in docs/metrics.md."""
    rows = re.findall(r"^\| `(\w+)` \| (\w+) \| (.*?) \| .+ \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, re.findall(r"`(\w+)`", labels)) for name, kind, labels in rows}


def test_every_documented_metric_is_there_with_its_type_and_labels_and_no_other(operations: Operations) -> None:
    sent = operations.get("/metrics").body
    types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", sent, re.MULTILINE))
    pages = documented()
    optional = {
        "volary_user_queries_total",  # only if it is asked for
        "volary_user_query_seconds_total",
        "volary_certificate_expiry_timestamp_seconds",  # only with TLS
    }
    assert set(types) == set(pages) - optional
    for name, kind in types.items():
        assert kind == pages[name][0], name
        series = re.findall(rf"^{name}(?:_bucket|_sum|_count)?(?:{{(.*?)}})? ", sent, re.MULTILINE)
        assert series, name
        labels = {label for labels in series for label in re.findall(r"(\w+)=", labels)} - {"le"}
        assert labels == set(pages[name][1]), name


def test_prometheus_gets_openmetrics_and_others_the_older_format(operations: Operations) -> None:
    accept = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.2"
    answer = operations.get("/metrics", Accept=accept)
    assert answer.content_type.startswith("application/openmetrics-text; version=1.0.0")
    assert answer.body.endswith("# EOF\n")
    assert "# TYPE volary_queries counter" in answer.body
    answer = operations.get("/metrics")
    assert answer.content_type.startswith("text/plain; version=0.0.4")
    assert "# TYPE volary_queries_total counter" in answer.body


def test_statements_are_counted_by_how_they_end(observed: LocalCluster, operations: Operations) -> None:
    with observed.connect() as connection:
        before = operations.values()
        connection.sql("CREATE TABLE counted (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 4)").rows()
        connection.sql("INSERT INTO counted SELECT value, value FROM generate_series(1, 1000)").rows()
        assert connection.sql("SELECT count(*) FROM counted WHERE v >= 0").rows() == [(1000,)]
        with pytest.raises(volary.Error):
            connection.sql("SELEC 1").rows()

        def grown(series: str) -> float:
            return operations.values()[series] - before[series]

        ended = {'volary_queries_total{outcome="ok"}': 3, 'volary_queries_total{outcome="invalid_argument"}': 1}
        for series, count in ended.items():
            until(lambda series=series, count=count: grown(series) == count, f"{series} has grown by {count}")
        assert grown("volary_query_duration_seconds_count") == 4
        assert grown("volary_written_rows_total") == 1000
        assert grown('volary_writes_total{outcome="committed"}') == 1
        assert grown("volary_tables") == 1
        assert grown("volary_client_sent_rows_total") >= 1
        workers = [re.findall(r'\{node="(w\d+)"', series) for series in before]
        nodes = sorted({worker for found in workers for worker in found})
        assert len(nodes) == 2
        values = operations.values()
        places = ("volary_segment_rows", "volary_log_rows")
        assert sum(values[f'{place}{{node="{node}"}}'] for place in places for node in nodes) == 1000
        received = [grown(f'volary_received_rows_total{{node="{node}"}}') for node in nodes]
        assert sum(received) == 1000
        fragments = [grown(f'volary_fragments_total{{node="{node}",kind="shards",outcome="ok"}}') for node in nodes]
        assert sum(fragments) >= 2
        assert grown('volary_gather_streams_total{node="gateway"}') >= 2
        assert operations.values()['volary_gather_streams_open{node="gateway"}'] == 0


def test_the_process_is_measured(operations: Operations) -> None:
    values = operations.values()
    assert values["process_resident_memory_bytes"] > 1 << 20
    assert values["process_cpu_seconds_total"] > 0
    assert 0 < values["process_open_fds"] <= values["process_max_fds"]
    assert values['volary_disk_available_bytes{node="gateway"}'] <= values['volary_disk_size_bytes{node="gateway"}']
    assert values['volary_workers{state="alive"}'] == 2
    lag = 'volary_runtime_lag_seconds_count{runtime="cpu"}'
    until(lambda: operations.values()[lag] >= 2, "the lag was measured twice")


def test_health_and_readiness_of_a_process_that_serves(operations: Operations) -> None:
    assert operations.get("/healthz").body == "alive\n"
    assert operations.get("/readyz") == (200, "text/plain; charset=utf-8", "ready\n")
    assert operations.values()['volary_ready{node="gateway"}'] == 1


def test_other_requests_are_refused_with_what_there_is(operations: Operations) -> None:
    missing = operations.get("/")
    assert (missing.status, missing.body) == (404, "the paths are /metrics, /healthz and /readyz\n")
    assert operations.get("/metrics", method="POST").status == 405
    head = operations.get("/metrics", method="HEAD")
    assert (head.status, head.body) == (200, "")


def test_a_worker_without_a_gateway_is_alive_and_not_ready(tmp_path: Path) -> None:
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        gateway = f"127.0.0.1:{nobody.getsockname()[1]}"
        arguments = ["worker", "--listen=127.0.0.1:0", f"--gateway={gateway}", f"--data-dir={tmp_path / 'w'}"]
        worker = Process(tmp_path, "worker", arguments, LISTENS)
        try:
            until(lambda: "metrics at" in worker.output(), "the worker answers monitoring systems")
            operations = Operations(worker.output())
            assert operations.get("/healthz").status == 200
            waiting = operations.get("/readyz")
            assert (waiting.status, waiting.body) == (503, "the process is starting: 0 of 1 nodes serve\n")
            assert "process_open_fds" in operations.values()
        finally:
            worker.kill()


def test_a_lost_worker_and_its_return_are_seen_by_the_gateway(tmp_path: Path) -> None:
    settings = {**LISTENS, "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "1s"}
    with Processes(tmp_path, settings) as cluster:
        worker = cluster.add_worker()
        gateway = Operations(cluster.gateway.running().output())
        gateway.await_value('volary_workers{state="alive"}', 1)
        worker.kill()
        gateway.await_value('volary_workers{state="lost"}', 1)
        worker.start()
        gateway.await_value('volary_workers{state="alive"}', 1)
        own = Operations(worker.running().output())
        assert own.values()[f'volary_gateway_last_question_seconds{{node="{worker.id}"}}'] < PATIENCE_SECONDS


def test_the_token_is_asked_for_metrics_and_may_be_replaced(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a token of Prometheus\n")
    with LocalCluster(
        tmp_path, workers=1, settings={**LISTENS, "VOLARY_OPERATIONS__TOKEN_FILE": str(token)}
    ) as cluster:
        operations = Operations(cluster.output())
        refused = operations.get("/metrics")
        assert refused.status == 401
        assert "operations.token_file" in refused.body
        assert operations.get("/metrics", Authorization="Bearer another").status == 401
        assert operations.get("/metrics", Authorization="Bearer a token of Prometheus").status == 200
        assert operations.get("/readyz").status == 200
        token.write_text("a newer token")
        assert operations.get("/metrics", Authorization="Bearer a token of Prometheus").status == 401
        assert operations.get("/metrics", Authorization="Bearer a newer token").status == 200
        token.unlink()
        lost = operations.get("/metrics", Authorization="Bearer a newer token")
        assert lost.status == 500
        assert str(token) not in lost.body
        assert str(token) in cluster.log()


def test_metrics_over_tls_with_the_expiry_of_certificates(tmp_path: Path) -> None:
    certificates = Certificates(tmp_path / "certificates")
    settings = {**LISTENS, **certificates.shown("OPERATIONS"), **certificates.of_node("GATEWAY")}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster:
        operations = Operations(cluster.output(), certificates.trusting())
        assert operations.uri.startswith("https://")
        expiry = operations.values()
        shown = ssl.get_server_certificate(cluster.uri.split("://")[1].rsplit(":", 1))  # type: ignore[arg-type]
        assert shown.startswith("-----BEGIN")
        node = expiry['volary_certificate_expiry_timestamp_seconds{node="gateway",file="certificate"}']
        authority = expiry['volary_certificate_expiry_timestamp_seconds{node="gateway",file="authorities"}']
        assert 1_700_000_000 < node < authority


def test_users_have_metrics_only_if_that_is_asked_for(operations: Operations, tmp_path: Path) -> None:
    assert "volary_user_queries_total" not in operations.get("/metrics").body
    settings = {**LISTENS, "VOLARY_OPERATIONS__LABEL_USERS": "true"}
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster:
        with volary.connect(cluster.uri, username="kea", password="a password") as connection:
            connection.sql("SELECT 1").rows()
        Operations(cluster.output()).await_value('volary_user_queries_total{user="kea"}', 1)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"VOLARY_OPERATIONS__TOKEN_FILE": "token"}, "operations.token_file is set, but operations.listen is not"),
        ({**LISTENS, "VOLARY_OPERATIONS__TLS__KEY": "key"}, "operations.tls.certificate and key belong together"),
        ({"VOLARY_OPERATIONS__LISTN": "x"}, "there is no setting operations.listn; [operations] has label_users"),
    ],
)
def test_wrong_settings_are_refused_with_the_key(settings: dict[str, str], said: str) -> None:
    ended = run("volary", "config", settings=settings)
    assert ended.code == 2
    assert said in ended.err


def test_a_port_in_use_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ended = run(
            "volary", "local", f"--data-dir={tmp_path / 'data'}", settings={"VOLARY_OPERATIONS__LISTEN": address}
        )
        assert ended.code == 1
        assert f"cannot listen on {address}: the port is in use by another process" in ended.err
        assert not (tmp_path / "data").exists()
