"""Tests the secret of a cluster. Nodes with the secret join, others are refused with advice, and nobody can read the
secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from processes import Process, Processes, Worker, until

import volary

pytestmark = pytest.mark.server

SECRET = "horse battery staple 0147"
OTHER = "horse battery staple 0148"
HIDDEN = "(not shown)"
REFUSED = "the worker's secret differs from this gateway's secret; set worker.secret to the value of gateway.secret"
NONE_HERE = (
    "the worker has a secret, and this gateway has none; set gateway.secret to the same value, or remove worker.secret"
)


def begin_gateway(processes: Processes, *flags: str) -> None:
    """Starts or restarts the gateway."""
    gateway = processes.gateway
    ready = gateway.begin(["gateway", f"--listen={gateway.address}", *flags]).await_ready()
    gateway.address = ready.rsplit("grpc://", 1)[1]


@contextmanager
def gateway_with(directory: Path, *flags: str, **settings: str) -> Iterator[Processes]:
    """Starts a gateway with its own flags and settings, which workers do not share."""
    processes = Processes(directory, settings)
    try:
        begin_gateway(processes, *flags)
        yield processes
    finally:
        for node in [*processes.workers, processes.gateway]:
            node.end()


def begin_worker(processes: Processes, *flags: str, data_dir: Path | None = None, **settings: str) -> Worker:
    """Starts another worker with its own flags and settings, without waiting for anything."""
    name = f"worker{len(processes.workers) + 1}"
    address = processes.gateway.address
    worker = Worker(processes.directory, name, {**Processes.SETTINGS, **settings}, address, None)
    worker.data_dir = data_dir or worker.data_dir
    processes.workers.append(worker)
    worker.begin(["worker", "--listen=127.0.0.1:0", f"--gateway={address}", *flags])
    return worker


def given(way: str, role: str, directory: Path) -> tuple[list[str], dict[str, str]]:
    """Returns the flags and the settings that give SECRET to a node."""
    file = directory / f"{role}.secret"
    match way:
        case "VOLARY_SECRET":
            return [], {"VOLARY_SECRET": SECRET}
        case "a variable of its own":
            return [], {f"VOLARY_{role.upper()}__SECRET": SECRET}
        case "--secret-file":
            # Editors and `echo` end the file with a newline.
            file.write_text(f"{SECRET}\n")
            return [f"--secret-file={file}"], {}
        case "--secret-file before VOLARY_SECRET":
            file.write_text(SECRET)
            return [f"--secret-file={file}"], {"VOLARY_SECRET": OTHER}
    file.write_text(f'[{role}]\nsecret = "{SECRET}"\n')
    return [f"--config={file}"], {}


def create_nests(processes: Processes) -> None:
    processes.sql("CREATE TABLE nests (k BIGINT NOT NULL, eggs BIGINT) WITH (shard_key = 'k', shards = 4)")
    processes.sql("INSERT INTO nests VALUES (1, 3), (2, 4), (3, NULL)")


def assert_nests_are_there(processes: Processes) -> None:
    assert processes.sql("SELECT k, eggs FROM nests WHERE k > 1 ORDER BY k") == [(2, 4), (3, None)]


def log(directory: Path, name: str) -> str:
    return (directory / f"{name}.log").read_text()


def ended(process: Process) -> str:
    """Waits until a process has ended by itself, and returns what it has printed."""
    until(lambda: not process.is_alive(), "the process has ended")
    return process.output()


# Joining


@pytest.mark.parametrize(
    ("gateway", "worker"),
    [
        ("VOLARY_SECRET", "VOLARY_SECRET"),
        ("VOLARY_SECRET", "--secret-file"),
        ("--secret-file", "a variable of its own"),
        ("a settings file", "--secret-file before VOLARY_SECRET"),
        ("a variable of its own", "a settings file"),
    ],
)
def test_nodes_with_the_same_secret_are_a_cluster_however_it_is_given(
    tmp_path: Path, gateway: str, worker: str
) -> None:
    flags, settings = given(gateway, "gateway", tmp_path)
    with gateway_with(tmp_path, *flags, **settings) as processes:
        flags, settings = given(worker, "worker", tmp_path)
        joined = begin_worker(processes, *flags, **settings)
        joined.await_ready()
        create_nests(processes)
        assert_nests_are_there(processes)
        assert processes.nodes("state") == {joined.id: "alive"}


@pytest.mark.parametrize(
    ("gateway", "worker"),
    [(SECRET, OTHER), (SECRET, None), (SECRET, SECRET.upper()), (None, SECRET)],
    ids=["another one", "none at a gateway with one", "one in other letters", "one at a gateway with none"],
)
def test_a_worker_with_another_secret_is_refused_with_what_to_do_and_ends(
    tmp_path: Path, gateway: str | None, worker: str | None
) -> None:
    def settings(secret: str | None) -> dict[str, str]:
        return {} if secret is None else {"VOLARY_SECRET": secret}

    with gateway_with(tmp_path, **settings(gateway)) as processes:
        member = begin_worker(processes, **settings(gateway))
        member.await_ready()
        create_nests(processes)
        stranger = begin_worker(processes, **settings(worker))
        code, line = stranger.running().await_failure()
        assert (code, line) == (
            1,
            f"volary: PERMISSION_DENIED: gateway at {processes.gateway.address}: {REFUSED if gateway else NONE_HERE}",
        )
        assert stranger.running().output() == ""
        # The stranger was never a member, so it is not listed as lost. It disturbs nobody.
        assert processes.nodes("state") == {member.id: "alive"}
        assert_nests_are_there(processes)


def test_a_worker_that_was_refused_joins_with_the_same_directory_when_it_has_the_secret(tmp_path: Path) -> None:
    with gateway_with(tmp_path, VOLARY_SECRET=SECRET) as processes:
        refused = begin_worker(processes, VOLARY_SECRET=OTHER)
        assert refused.running().await_failure()[0] == 1
        joined = begin_worker(processes, data_dir=refused.data_dir, VOLARY_SECRET=SECRET)
        joined.await_ready()
        create_nests(processes)
        assert_nests_are_there(processes)


def test_workers_serve_nobody_but_a_gateway_with_their_secret(tmp_path: Path) -> None:
    changed = tmp_path / "changed"
    changed.write_text(OTHER)
    # The statement must reach the worker. The gateway must not know before that the worker does not answer.
    patient = {"VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "1h"}
    with gateway_with(tmp_path, VOLARY_SECRET=SECRET, **patient) as processes:
        worker = begin_worker(processes, VOLARY_SECRET=SECRET)
        worker.await_ready()
        create_nests(processes)

        # An intruder might have the same gateway, catalog and address, but not the secret.
        processes.gateway.kill()
        begin_gateway(processes, f"--secret-file={changed}")
        refusal = f"PERMISSION_DENIED: gateway at {processes.gateway.address}: {REFUSED}"
        until(lambda: refusal in log(tmp_path, worker.name), "the worker says so")
        # The refusal is logged once. Before it, there may be one warning that nobody answered.
        warnings = [
            line for line in log(tmp_path, worker.name).splitlines() if "reporting to the gateway fails" in line
        ]
        assert [refusal in warning for warning in warnings] in ([True], [False, True])
        assert all(" WARN " in warning for warning in warnings)
        for statement in ("SELECT k FROM nests WHERE k > 0", "INSERT INTO nests VALUES (4, 4)"):
            with pytest.raises(volary.PermissionDeniedError, match="was not sealed by this cluster") as caught:
                processes.sql(statement)
            assert f"worker {worker.id} at 127.0.0.1:" in caught.value.message
        assert worker.running().is_alive()

        # With the secret, everything works again: the gateway asks, and the worker has kept trying to join.
        processes.gateway.kill()
        begin_gateway(processes)
        until(lambda: processes.nodes("state") == {worker.id: "alive"}, "the worker is there again")
        assert_nests_are_there(processes)
        assert processes.sql("SELECT count(eggs), count(*) FROM nests") == [(2, 3)]
        assert "reporting to the gateway works again" in log(tmp_path, worker.name)


# Reading the secret


def test_the_secret_is_in_no_file_of_a_node_and_in_no_log(tmp_path: Path) -> None:
    everything = {"VOLARY_LOG__FILTER": "trace"}
    with gateway_with(tmp_path, VOLARY_SECRET=SECRET, **everything) as processes:
        worker = begin_worker(processes, VOLARY_SECRET=SECRET, **everything)
        worker.await_ready()
        refused = begin_worker(processes, VOLARY_SECRET=OTHER, **everything)
        assert refused.running().await_failure()[0] == 1
        create_nests(processes)
        assert_nests_are_there(processes)
        worker.running().stop()
        processes.gateway.running().stop()
        logged = "".join(log(tmp_path, node.name) for node in (processes.gateway, worker, refused))
        assert " TRACE " in logged
        assert REFUSED in logged
        files = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert {path.name for path in files} >= {"gateway.log", "worker1.log", "worker2.log", "volary.json"}
        for path in files:
            content = path.read_bytes()
            for secret in (SECRET, OTHER):
                assert secret.encode() not in content, path


@pytest.mark.parametrize("way", ["VOLARY_SECRET", "a settings file", "variables of their own"])
def test_the_settings_are_printed_without_the_secret(tmp_path: Path, way: str) -> None:
    file = tmp_path / "volary.toml"
    file.write_text(f'[gateway]\nsecret = "{SECRET}"\n[worker]\nsecret = "{OTHER}"\n')
    settings = {
        "VOLARY_SECRET": {"VOLARY_SECRET": SECRET},
        "a settings file": {"VOLARY_CONFIG": str(file)},
        "variables of their own": {"VOLARY_GATEWAY__SECRET": SECRET, "VOLARY_WORKER__SECRET": OTHER},
    }[way]
    process = Process(tmp_path, "config", ["config"], settings)
    printed = ended(process)
    assert re.findall(r'"secret": (.*?),?\n', printed) == [f'"{HIDDEN}"'] * 2
    for secret in (SECRET, OTHER):
        assert secret not in printed + log(tmp_path, "config")


def test_where_no_secret_is_set_the_settings_say_so(tmp_path: Path) -> None:
    printed = ended(Process(tmp_path, "config", ["config"], {}))
    assert re.findall(r'"secret": (.*?),?\n', printed) == ["null"] * 2


@pytest.mark.parametrize("flags", [["--secret", SECRET], [f"--secret={SECRET}"]], ids=["apart", "in one"])
@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_the_secret_is_no_flag_which_every_user_of_a_machine_reads(tmp_path: Path, role: str, flags: list[str]) -> None:
    process = Process(tmp_path, role, [role, "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}", *flags], {})
    assert process.await_failure()[0] == 2
    said = log(tmp_path, role)
    assert "unexpected argument '--secret'" in said
    assert "--secret-file" in said
    assert SECRET not in said


def test_a_settings_file_that_is_wrong_at_the_secret_is_refused_without_it(tmp_path: Path) -> None:
    file = tmp_path / "volary.toml"
    file.write_text(f'[gateway]\nsecret = "{SECRET}\n')
    code, line = Process(tmp_path, "config", ["config", f"--config={file}"], {}).await_failure()
    assert code == 2
    assert line.startswith(f"volary: INVALID_ARGUMENT: {file}: ")
    assert "line 2" in line
    assert SECRET not in log(tmp_path, "config")


# Starts that are refused


@pytest.mark.parametrize("role", ["gateway", "worker"])
@pytest.mark.parametrize(
    ("content", "code", "what"),
    [
        (None, "NOT_FOUND", "cannot read --secret-file {file}: "),
        ("", "INVALID_ARGUMENT", "--secret-file {file} is empty"),
        (" \n\t\n", "INVALID_ARGUMENT", "--secret-file {file} is empty"),
    ],
    ids=["missing", "empty", "blank"],
)
def test_a_file_without_a_secret_is_refused(
    tmp_path: Path, role: str, content: str | None, code: str, what: str
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_text(content)
    data = tmp_path / "data"
    process = Process(tmp_path, role, [role, "--listen=127.0.0.1:0", f"--data-dir={data}", f"--secret-file={file}"], {})
    exit_code, line = process.await_failure()
    assert exit_code == 2
    assert line.startswith(f"volary: {code}: {what.format(file=file)}"), line
    assert not data.exists()


# `volary config` makes the same checks as a start, but listens nowhere.


@pytest.mark.parametrize("address", ["0.0.0.0:7100", "[::]:7100", "192.0.2.1:7100"])
@pytest.mark.parametrize(("role", "other"), [("gateway", "worker"), ("worker", "gateway")])
def test_an_address_that_other_machines_reach_takes_a_secret(
    tmp_path: Path, role: str, other: str, address: str
) -> None:
    listen = {f"VOLARY_{role.upper()}__LISTEN": address}
    code, line = Process(tmp_path, "without", ["config"], listen).await_failure()
    assert code == 2
    assert line == (
        f"volary: INVALID_ARGUMENT: {role}.listen is {address}, which other machines reach: "
        f"set {role}.secret (and the same {other}.secret on the {other}{'s' if other == 'worker' else ''}); "
        "`volary secret new` prints a good one"
    )
    # The secret of the other role does not count.
    code, line = Process(
        tmp_path, "others", ["config"], {**listen, f"VOLARY_{other.upper()}__SECRET": SECRET}
    ).await_failure()
    assert (code, f"set {role}.secret" in line) == (2, True)
    assert f'"listen": "{address}"' in ended(Process(tmp_path, "with", ["config"], {**listen, "VOLARY_SECRET": SECRET}))


@pytest.mark.parametrize("secret", ["", " "], ids=["empty", "blank"])
@pytest.mark.parametrize("role", ["gateway", "worker"])
def test_an_empty_secret_is_none(tmp_path: Path, role: str, secret: str) -> None:
    # The variable may be empty because of a script. With an empty secret, everybody could join.
    settings = {f"VOLARY_{role.upper()}__LISTEN": "0.0.0.0:7100", "VOLARY_SECRET": secret}
    process = Process(tmp_path, "config", ["config"], settings)
    assert ended(process) == ""
    code, line = process.await_failure()
    assert code == 2
    assert line.startswith("volary: INVALID_ARGUMENT: ")
    assert "secret" in line
