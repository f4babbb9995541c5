"""Lets Prometheus scrape a cluster over TLS with a token, and asks it for the metrics of docs/metrics.md."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from certificates import Certificates
from observability import REPOSITORY, RULES, alerts, dashboard_queries, metrics, series
from optional_tools import tool
from processes import Gateway, HeldPort, Processes, Worker, until
from scrape import Operations

import volary

pytestmark = pytest.mark.server

PASSWORD = "correct horse battery"
TOKEN = "a token of scrapers"
ROWS = 1000
STATEMENT = re.compile(
    r"SELECT [\w*, ()]+ FROM system\.\w+(?: WHERE \w+ (?:IS NOT NULL|<> '\w+'))?(?: GROUP BY \w+(?:, \w+)*)?"
)


class Observed(Processes):
    """A cluster with a secret, an administrator and TLS, whose nodes have operations listeners with a token."""

    def __init__(self, directory: Path) -> None:
        self.certificates = Certificates(directory / "certificates")
        self.token_file = directory / "token"
        self.token_file.write_text(TOKEN)
        settings = {
            **self.certificates.of_nodes(),
            **self.certificates.shown("OPERATIONS"),
            "VOLARY_SECRET": "a secret of nodes 5534",
            "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": PASSWORD,
            "VOLARY_OPERATIONS__TOKEN_FILE": str(self.token_file),
            "VOLARY_OPERATIONS__LABEL_USERS": "true",
            # All rows go to segments at once, so that there are some.
            "VOLARY_WORKER__STORAGE__LOGGED_WRITE": "1B",
        }
        super().__init__(directory, settings)
        self.operations: dict[str, HeldPort] = {}
        # Each node has an address of its own, so the gateway needs other settings than the first one, which never runs.
        self.gateway.end()
        self.gateway = Gateway(directory, self._with_operations("gateway"))

    def _with_operations(self, name: str) -> dict[str, str]:
        self.operations[name] = HeldPort()
        return {**self.settings, "VOLARY_OPERATIONS__LISTEN": self.operations[name].address}

    def add_observed_worker(self) -> Worker:
        """Starts another worker with an operations listener."""
        name = f"worker{len(self.workers) + 1}"
        worker = Worker(self.directory, name, self._with_operations(name), self.gateway.address, None)
        self.workers.append(worker)
        worker.start()
        return worker

    def log_in(self, password: str = PASSWORD) -> volary.Connection:
        """Connects as the administrator."""
        return volary.connect(self.gateway.uri, username="admin", password=password, tls_ca=self.certificates.authority)

    def __exit__(self, *of_the_test: object) -> None:
        super().__exit__(*of_the_test)
        for port in self.operations.values():
            port.close()


class Prometheus:
    """A Prometheus that scrapes the cluster twice a second, with the alert rules."""

    def __init__(self, directory: Path, cluster: Observed) -> None:
        self._program = tool("prometheus")
        self._directory = directory
        self._port = HeldPort()
        self._log = directory / "prometheus.log"
        config = {
            "global": {"scrape_interval": "500ms", "evaluation_interval": "500ms"},
            "rule_files": [str(RULES)],
            "scrape_configs": [
                {
                    "job_name": "volary",
                    "scheme": "https",
                    "authorization": {"credentials_file": str(cluster.token_file)},
                    "tls_config": {"ca_file": str(cluster.certificates.authority)},
                    "static_configs": [{"targets": [port.address for port in cluster.operations.values()]}],
                }
            ],
        }
        self._config = directory / "prometheus.json"
        # JSON is YAML.
        self._config.write_text(json.dumps(config))

    def __enter__(self) -> Prometheus:
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._directory / 'prometheus'}",
                    f"--web.listen-address={self._port.address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._port.close()

    def get(self, path: str, **parameters: str) -> Any:
        """Returns the data of an answer, or None as long as Prometheus does not answer."""
        assert self._process.poll() is None, self._log.read_text()
        url = f"http://{self._port.address}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            # While Prometheus starts, it answers 503.
            if error.code != 503:
                raise
            return None
        except OSError:
            return None

    def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Returns the labels and the value of each series of an expression."""
        data = self.get("query", query=expression) or {"result": []}
        return [(found["metric"], float(found["value"][1])) for found in data["result"]]

    def value(self, expression: str) -> float | None:
        """Returns the value of an expression with at most one series."""
        found = self.query(expression)
        assert len(found) < 2, found
        return found[0][1] if found else None

    def targets(self) -> dict[str, tuple[str, str]]:
        """Returns the health and the last error of each target."""
        active = (self.get("targets") or {"activeTargets": []})["activeTargets"]
        return {target["labels"]["instance"]: (target["health"], target["lastError"]) for target in active}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Observed]:
    """A cluster of two workers, in which something has happened."""
    with Observed(tmp_path_factory.mktemp("observed")) as cluster:
        for _ in range(2):
            cluster.add_observed_worker()
        with pytest.raises(volary.Error):
            cluster.log_in("a wrong password").sql("SELECT 1").rows()
        # The session lasts as long as the connection.
        with cluster.log_in() as db:
            alive = "SELECT count(*) FROM system.nodes WHERE role = 'worker' AND state = 'alive'"
            until(lambda: db.sql(alive).rows() == [(2,)], "two workers are alive")
            db.sql("CREATE TABLE nests (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 8)")
            db.sql(f"INSERT INTO nests SELECT value, value FROM generate_series(1, {ROWS})")
            work(db)
            yield cluster


def work(db: volary.Connection) -> None:
    """Runs statements that succeed and fail, and of which all nodes and directions get something to do."""
    assert len(db.sql("SELECT k, v FROM nests").rows()) == ROWS
    assert db.sql("SELECT sum(v) FROM nests WHERE k > 0").rows() == [(ROWS * (ROWS + 1) // 2,)]
    with pytest.raises(volary.Error):
        db.sql("SELECT nothing FROM nests").rows()
    # This fails on the workers.
    with pytest.raises(volary.Error):
        db.sql("SELECT CAST(CAST(v AS VARCHAR) || 'x' AS BIGINT) FROM nests").rows()


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory, cluster: Observed) -> Iterator[Prometheus]:
    with Prometheus(tmp_path_factory.mktemp("prometheus"), cluster) as prometheus:
        until(lambda: all_up(prometheus), "all targets are up")
        yield prometheus


def all_up(prometheus: Prometheus) -> bool:
    targets = prometheus.targets()
    return len(targets) == 3 and {health for health, _ in targets.values()} == {"up"}


def test_all_metrics_of_the_list_are_scraped_and_no_others(prometheus: Prometheus):
    def scraped() -> set[str]:
        names = prometheus.get("label/__name__/values", match='{job="volary"}') or []
        return {name for name in names if name.startswith(("volary_", "process_"))}

    until(lambda: scraped() >= series(), "all series are there")
    # Histograms of OpenMetrics have one more.
    assert {name for name in scraped() if not name.endswith("_created")} == series()


def test_types_and_help_are_those_of_the_list(prometheus: Prometheus):
    metadata = prometheus.get("metadata")
    for name, kind in metrics().items():
        # In OpenMetrics, the name of a counter is written without its ending.
        found = metadata.get(name) or metadata.get(name.removesuffix("_total"))
        assert found, name
        assert {entry["type"] for entry in found} == {kind}, name
        assert all(entry["help"] for entry in found), name


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("count(volary_ready == 1)", 3),
        ("count(volary_build_info == 1)", 3),
        ('sum(volary_workers{state="alive"})', 2),
        ('sum(volary_workers{state!="alive"}) or vector(0)', 0),
        ("volary_lineage_conflict", 0),
        ("sum(volary_damaged_segments)", 0),
        ("volary_tables", 1),
        ("volary_users", 1),
        ("sum(volary_shards)", 8),
        ("sum(volary_segment_rows) + sum(volary_log_rows)", ROWS),
        ("volary_written_rows_total", ROWS),
        ('volary_writes_total{outcome="committed"}', 1),
        ("volary_queries_running", 0),
        ("volary_queries_waiting", 0),
        ("volary_queries_running_limit", 256),
        ("volary_queries_waiting_limit", 1024),
        ("volary_sessions_limit", 100000),
        ('volary_memory_limit_bytes{node="gateway"}', 256 << 20),
        ("count(volary_memory_limit_bytes)", 3),
        ("count(volary_disk_size_bytes > volary_disk_available_bytes)", 3),
        ("count(process_open_fds > 0 and process_open_fds < process_max_fds)", 3),
        ("count(process_resident_memory_bytes > 1e6)", 3),
        ("count(process_start_time_seconds > 1.7e9 and process_start_time_seconds < time())", 3),
        ('count(volary_certificate_expiry_timestamp_seconds{file="certificate"} > time())', 3),
        # Each ended statement has a duration.
        ("sum(volary_queries_total) - sum(volary_query_duration_seconds_count)", 0),
    ],
)
def test_a_metric_has_the_value_that_it_should_have(prometheus: Prometheus, expression: str, expected: float):
    until(lambda: prometheus.value(expression) == expected, f"{expression} is {expected}")


@pytest.mark.parametrize(
    "expression",
    [
        'sum(volary_queries_total{outcome="ok"}) >= 4',
        'sum(volary_queries_total{outcome!~"ok|cancelled"}) >= 1',
        "volary_query_duration_seconds_count >= 5",
        "volary_query_duration_seconds_sum > 0",
        f"volary_client_sent_rows_total >= {ROWS}",
        "volary_client_sent_bytes_total >= 8000",
        f'volary_gather_rows_total{{node="gateway"}} >= {ROWS}',
        'volary_gather_streams_total{node="gateway"} >= 2',
        "volary_sessions >= 1",
        'volary_logins_total{outcome="accepted"} >= 1',
        'volary_logins_total{outcome="refused"} >= 1',
        'volary_user_queries_total{user="admin"} >= 4',
        f"sum(volary_received_rows_total) >= {ROWS}",
        f"sum(volary_fragment_sent_rows_total) >= {ROWS}",
        'sum(volary_fragments_total{kind="shards", outcome="ok"}) >= 2',
        "sum(volary_segments) >= 2",
        "sum(volary_segment_bytes) > 1000",
        'sum(volary_runtime_lag_seconds_count{runtime="io"}) >= 3',
    ],
)
def test_a_metric_is_at_least_what_has_happened(prometheus: Prometheus, cluster: Observed, expression: str):
    def holds() -> bool:
        if prometheus.query(expression):
            return True
        # Sessions are counted a moment after they begin, when the gateway next uses one.
        with cluster.log_in() as db:
            db.sql("SELECT 1").rows()
        return False

    until(holds, expression)


def test_each_rule_is_evaluated_and_none_of_a_healthy_cluster_fires(prometheus: Prometheus):
    def rules() -> list[dict[str, Any]]:
        return [rule for group in (prometheus.get("rules") or {"groups": []})["groups"] for rule in group["rules"]]

    until(lambda: {rule["health"] for rule in rules()} == {"ok"}, "each rule has been evaluated")
    assert {rule["name"] for rule in rules()} == {alert["alert"] for alert in alerts()}
    # The disk of this machine may be full.
    firing = {rule["name"] for rule in rules() if rule["state"] == "firing"}
    assert firing <= {"VolaryDiskFull"}


@pytest.mark.parametrize(("title", "expression"), dict.fromkeys(dashboard_queries()))
def test_each_panel_of_the_dashboard_has_data(prometheus: Prometheus, cluster: Observed, title: str, expression: str):
    with cluster.log_in() as db:

        def has_data() -> bool:
            if prometheus.query(expression):
                return True
            # The rate of a counter needs two scrapes, and that of a failure needs failures.
            work(db)
            return False

        until(has_data, f"{title} has data")


def test_statements_that_the_alerts_recommend_work(cluster: Observed):
    texts = [alert["annotations"]["description"] for alert in alerts()]
    page = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    texts.append(page.partition("\n## Alerts\n")[2])
    statements = {found for text in texts for found in STATEMENT.findall(" ".join(text.split()))}
    assert len(statements) > 5
    with cluster.log_in() as db:
        for statement in sorted(statements):
            db.sql(statement).rows()


@contextmanager
def ended(worker: Worker) -> Iterator[None]:
    """Ends a worker, and starts it again."""
    worker.running().stop()
    yield
    worker.start()


def test_a_worker_that_ends_raises_an_alert_and_one_that_comes_back_ends_it(prometheus: Prometheus, cluster: Observed):
    address = cluster.operations[cluster.workers[1].name].address
    alert = f'ALERTS{{alertname="VolaryNodeDown", instance="{address}"}}'
    with ended(cluster.workers[1]):
        until(lambda: prometheus.value(f'up{{instance="{address}"}}') == 0, "the target is down")
        until(lambda: prometheus.query(alert), "the alert is pending")
        # The series of the worker end with it.
        assert not prometheus.query(f'volary_ready{{instance="{address}"}}')
        until(lambda: prometheus.value('sum(volary_workers{state="alive"})') == 1, "the gateway has noticed it")
    until(lambda: all_up(prometheus), "all targets are up again")
    until(lambda: not prometheus.query(alert), "the alert has ended")


def test_metrics_need_the_token_and_probes_do_not(cluster: Observed):
    gateway = Operations(cluster.gateway.running().output(), cluster.certificates.trusting())
    assert gateway.get("/metrics").status == 401
    assert gateway.get("/metrics", Authorization="Bearer another token").status == 401
    assert gateway.get("/metrics", Authorization=f"Bearer {TOKEN}").status == 200
    assert (gateway.get("/healthz").status, gateway.get("/readyz").status) == (200, 200)
