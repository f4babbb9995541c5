"""Tests `volary doctor`: what it finds wrong with a node before the node starts, and what it says to do."""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import protobuf as pb
import pytest
from certificates import Certificates
from processes import PATIENCE_SECONDS, HeldPort, Processes, binary, environment, run, until
from rogue_gateway import RogueGateway
from seals import Purpose, Seal, content

pytestmark = pytest.mark.server

SECRET = "a secret of nodes 7741"
OTHER_SECRET = "another secret of nodes 9"
HOUR_MS = 3_600_000
VERSION = "0.1.0"
"""A release of the series that this repository has, for a stub that answers as a gateway."""


class Check(NamedTuple):
    """The result of one check."""

    status: str
    found: str
    advice: str | None


class Report(NamedTuple):
    """The exit code and the checks, by their names. Several checks may have one name."""

    code: int
    checks: dict[str, list[Check]]

    def one(self, name: str) -> Check:
        """Returns the only check with this name."""
        (check,) = self.checks[name]
        return check

    def failed(self) -> set[str]:
        """Returns the names of the checks that have failed."""
        return {name for name, checks in self.checks.items() if any(check.status == "failed" for check in checks)}


def doctor(
    node: str,
    *arguments: str | Path,
    settings: Mapping[str, str] | None = None,
    before: Callable[[], None] | None = None,
    through: list[str] | None = None,
) -> Report:
    """Runs `volary doctor` with `--json`.

    `before` is called in the new process before it runs the program. `through` is a program that runs the program.
    """
    done = subprocess.run(
        [*(through or []), str(binary("volary")), "doctor", node, "--json", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=environment(settings or {}),
        preexec_fn=before,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert done.stdout, done.stderr.decode()
    shown = json.loads(done.stdout)
    checks: dict[str, list[Check]] = {}
    for check in shown["checks"]:
        checks.setdefault(check["name"], []).append(Check(check["status"], check["found"], check["advice"]))
    report = Report(done.returncode, checks)
    statuses = [check["status"] for check in shown["checks"]]
    assert shown["node"] == node
    assert (shown["failed"], shown["warnings"]) == (statuses.count("failed"), statuses.count("warning"))
    assert report.code == (1 if shown["failed"] else 0), shown
    return report


def worker(
    directory: Path,
    *arguments: str | Path,
    listen: str = "127.0.0.1:0",
    settings: Mapping[str, str] | None = None,
) -> Report:
    """Checks a worker with a data directory of its own, without the network."""
    places = [f"--listen={listen}", f"--data-dir={directory / 'data'}"]
    return doctor("worker", "--offline", *places, *arguments, settings=settings)


@pytest.fixture
def gateway_port() -> Iterator[str]:
    """An address at which nobody listens."""
    with HeldPort() as port:
        yield port.address


# What is found without the network


@pytest.mark.parametrize("node", ["gateway", "worker", "local"])
def test_a_node_on_a_good_machine_passes_and_nothing_is_left_behind(tmp_path: Path, node: str) -> None:
    report = doctor(node, "--offline", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}")
    assert report.code == 0
    assert report.one("settings") == Check("ok", "they are valid", None)
    assert report.one("listen address").status == "ok"
    assert {"disk", "certificates", "open files", "memory"} <= set(report.checks)
    assert list(tmp_path.iterdir()) == []


def test_each_check_is_a_line_for_people(tmp_path: Path) -> None:
    arguments = ["--offline", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    code, out, err = run("volary", "doctor", "worker", *arguments)
    assert (code, err) == (0, "")
    for line in out.splitlines():
        assert re.fullmatch(r"(ok|warning|failed) +[a-z ]+: .+", line), line
    assert "ok       settings: they are valid\n" in out
    assert f"data directory: {tmp_path / 'data'} does not exist yet, and can be created\n" in out


def test_all_wrong_settings_are_named_at_once_and_the_rest_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "worker.toml"
    file.write_text('[worker]\nlissten = "127.0.0.1:1"\n[worker.memory]\nlimit = "much"\n')
    report = worker(tmp_path, f"--config={file}", settings={"VOLARY_WORKER__ZONE": "here and there"})
    said = [check.found for check in report.checks["settings"]]
    assert report.failed() == {"settings"}
    assert len(said) == 3, said
    assert said[0].startswith(f"{file}: there is no setting worker.lissten")
    assert said[1].startswith(f"{file}: worker.memory.limit: ")
    assert said[2].startswith('worker.zone is "here and there"')
    assert report.one("data directory").status == "ok"


def test_a_settings_file_that_cannot_be_read_is_the_only_finding(tmp_path: Path) -> None:
    report = worker(tmp_path, f"--config={tmp_path / 'none.toml'}")
    assert list(report.checks) == ["settings"]
    assert report.one("settings").found == f"the settings file {tmp_path / 'none.toml'} does not exist"
    report = worker(tmp_path, f"--secret-file={tmp_path / 'none'}")
    assert report.one("settings").found.startswith(f"cannot read --secret-file {tmp_path / 'none'}")


def test_a_node_that_others_reach_needs_a_secret(tmp_path: Path) -> None:
    arguments = ["--offline", "--listen=0.0.0.0:0", f"--data-dir={tmp_path / 'data'}"]
    report = doctor("gateway", *arguments)
    assert report.failed() == {"settings"}
    assert "set gateway.secret" in report.one("settings").found
    assert doctor("gateway", *arguments, settings={"VOLARY_SECRET": SECRET}).code == 0


def test_a_worker_that_listens_everywhere_must_say_where_it_is_reached(tmp_path: Path) -> None:
    settings = {"VOLARY_SECRET": SECRET}
    report = worker(tmp_path, listen="0.0.0.0:0", settings=settings)
    check = report.one("advertised address")
    assert report.failed() == {"advertised address"}
    assert check.advice is not None
    assert check.advice.startswith("set worker.advertise to a host:port")
    assert worker(tmp_path, "--advertise=w.example:7200", listen="0.0.0.0:0", settings=settings).code == 0


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        report = doctor("gateway", "--offline", f"--listen={address}", f"--data-dir={tmp_path / 'data'}")
    check = report.one("listen address")
    assert report.failed() == {"listen address"}
    assert check.found == f"cannot listen on {address}: the port is in use by another process"
    assert check.advice is not None
    assert check.advice.startswith("choose another one or stop that process")


def test_two_addresses_of_a_worker_cannot_be_one(tmp_path: Path, gateway_port: str) -> None:
    settings = {"VOLARY_WORKER__CLIENTS__LISTEN": gateway_port}
    report = worker(tmp_path, listen=gateway_port, settings=settings)
    assert report.failed() == {"listen address of clients"}


def test_an_address_of_another_machine_is_named(tmp_path: Path) -> None:
    report = worker(tmp_path, listen="192.0.2.1:7200", settings={"VOLARY_SECRET": SECRET})
    assert report.failed() == {"listen address"}
    assert "this machine has no such address" in report.one("listen address").found


def test_too_few_open_files_are_named_with_the_need(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (80, 80))

    arguments = ["--offline", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    needs = {
        "gateway": "this gateway may open 80 files, and 1 workers need 104: raise the limit (ulimit -n",
        "worker": "the node may open 80 files, and needs 100",
        "local": "this process may open 80 files, and 4 workers need 140: raise the limit (ulimit -n",
    }
    for node, found in needs.items():
        report = doctor(node, *arguments, before=limit)
        assert report.failed() == {"open files"}
        assert report.one("open files").found.startswith(found)
        assert "LimitNOFILE= of systemd" in str(report.one("open files"))


def test_a_memory_limit_above_what_there_is_is_a_warning(tmp_path: Path) -> None:
    report = worker(tmp_path, "--memory=1000000GiB")
    assert (report.code, report.one("memory").status) == (0, "warning")


# The data directory


def unshared(mount: str, directory: Path, then: str = "true") -> list[str]:
    """Returns a program that runs another one where `directory` is a file system of its own."""
    script = f'mount -t tmpfs {mount} none "{directory}" && {then} && exec "$@"'
    through = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    if shutil.which("unshare") is None or subprocess.run([*through, "true"], check=False).returncode:
        through = ["unshare", "--mount", "sh", "-c", script, "sh"]
        if shutil.which("unshare") is None or subprocess.run([*through, "true"], check=False).returncode:
            pytest.skip("this machine lets nobody mount a file system")
    return through


def test_a_full_volume_is_named(tmp_path: Path) -> None:
    volume = tmp_path / "data"
    volume.mkdir()
    # dd fails when the volume is full, which is what it is for.
    through = unshared("-o size=256k", volume, f'{{ dd if=/dev/zero of="{volume}/lost+found" 2>/dev/null || true; }}')
    report = doctor("worker", "--offline", "--listen=127.0.0.1:0", f"--data-dir={volume}", through=through)
    check = report.one("data directory")
    assert report.failed() == {"data directory"}
    assert check.found.startswith(f"cannot write to {volume}: the disk is full")
    assert check.advice is not None
    assert check.advice.startswith("free space and retry")
    assert report.one("disk").status == "warning"


def test_a_read_only_volume_is_named(tmp_path: Path) -> None:
    volume = tmp_path / "data"
    volume.mkdir()
    through = unshared("-o ro", volume)
    for data_dir, found in (
        (volume, f"cannot write to {volume}: Read-only file system"),
        (volume / "node", f"cannot create {volume / 'node'}, because {volume} cannot be written to"),
    ):
        report = doctor("worker", "--offline", "--listen=127.0.0.1:0", f"--data-dir={data_dir}", through=through)
        assert report.failed() == {"data directory", "disk"}
        assert report.one("data directory").found.startswith(found)
        assert report.one("disk").found == f"the file system of {volume} is read-only"


def test_a_disk_that_takes_no_file_of_some_size_is_named(tmp_path: Path) -> None:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))

    report = doctor("worker", "--offline", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}", before=limit)
    assert report.failed() == {"data directory"}
    assert "File too large" in report.one("data directory").found


def test_a_directory_of_something_else_is_refused(tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "thesis.docx").touch()
    report = worker(tmp_path)
    assert report.failed() == {"data directory"}
    assert "is not empty (it contains thesis.docx)" in report.one("data directory").found


def test_a_local_cluster_has_its_former_number_of_workers(tmp_path: Path) -> None:
    for index in range(4):
        (tmp_path / "data" / f"worker-{index}").mkdir(parents=True)
    arguments = ["--offline", "--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    assert doctor("local", *arguments).code == 0
    report = doctor("local", "--workers=3", *arguments)
    assert report.failed() == {"workers"}
    assert report.one("workers").advice == "start it with --workers 4, or give another --data-dir"


# Certificates


def certificates(directory: Path, *arguments: str, role: str = "WORKER") -> dict[str, str]:
    """Makes certificates of nodes, and returns the settings of a node that uses them."""
    return Certificates(directory, *arguments).of_node(role)


def test_a_certificate_that_fits_passes(tmp_path: Path) -> None:
    report = worker(tmp_path, settings=certificates(tmp_path / "tls"))
    assert report.code == 0
    assert report.one("certificates") == Check("ok", "the files can be read and fit together", None)
    assert report.one("private key").status == "ok"
    assert report.one("names").found == "the certificate is for 127.0.0.1"
    own, authority = report.checks["expiry"]
    assert re.search(r"node\.pem, is valid until .+, for 36[45] days$", own.found), own
    assert re.search(r"authority\.pem, is valid until .+, for 36(49|50) days$", authority.found), authority


def test_a_certificate_for_another_name_is_named_with_its_names(tmp_path: Path) -> None:
    settings = certificates(tmp_path / "tls", "--host=w.example", "--host=10.0.0.1")
    report = worker(tmp_path, settings=settings)
    check = report.one("names")
    assert report.failed() == {"names"}
    assert f"{tmp_path / 'tls' / 'node.pem'}: it is for w.example, 10.0.0.1, and not for 127.0.0.1" in check.found
    assert "connect to 127.0.0.1:" in check.found
    assert check.advice is not None
    assert "tls.node_name" in check.advice
    assert worker(tmp_path, "--advertise=w.example:7200", settings=settings).code == 0
    named = {**settings, "VOLARY_WORKER__TLS__NODE_NAME": "nodes.example"}
    report = worker(tmp_path, "--advertise=w.example:7200", settings=named)
    assert "and not for nodes.example" in report.one("names").found


def test_an_expired_certificate_and_one_that_expires_soon_are_named(tmp_path: Path) -> None:
    # A certificate for no day has expired at the last midnight.
    report = worker(tmp_path, settings=certificates(tmp_path / "expired", "--days=0"))
    assert report.failed() == {"expiry"}
    own, authority = report.checks["expiry"]
    assert re.search(r"node\.pem, has expired at .+, and the clock says ", own.found), own
    assert own.advice is not None
    assert "volary certificates --renew" in own.advice
    assert authority.status == "ok"

    report = worker(tmp_path, settings=certificates(tmp_path / "soon", "--days=10"))
    assert report.code == 0
    assert report.checks["expiry"][0].status == "warning"
    assert re.search(r"expires at .+, in (9|10) days$", report.checks["expiry"][0].found)


def test_a_certificate_of_the_future_points_at_the_clock(tmp_path: Path) -> None:
    directory = tmp_path / "tls"
    settings = certificates(directory)
    request = directory / "node.csr"
    subprocess.run(
        ["openssl", "req", "-new", "-key", directory / "node.key", "-subj", "/CN=node", "-out", request], check=True
    )
    (directory / "index").touch()
    (directory / "ca.conf").write_text(
        f"[ca]\ndefault_ca=own\n[own]\ndatabase={directory / 'index'}\nnew_certs_dir={directory}\nrand_serial=yes\n"
        "default_md=sha256\npolicy=any\n[any]\ncommonName=supplied\n"
        "[node]\nextendedKeyUsage=serverAuth,clientAuth\nsubjectAltName=IP:127.0.0.1\n"
    )
    day_s = 86_400
    start, end = (time.strftime("%y%m%d%H%M%SZ", time.gmtime(time.time() + days * day_s)) for days in (2, 90))
    subprocess.run(
        [
            *("openssl", "ca", "-batch", "-notext", "-config", directory / "ca.conf", "-extensions", "node"),
            *("-cert", directory / "authority.pem", "-keyfile", directory / "authority.key"),
            *("-startdate", start, "-enddate", end, "-in", request, "-out", directory / "node.pem"),
        ],
        check=True,
        capture_output=True,
    )
    report = worker(tmp_path, settings=settings)
    check = report.checks["expiry"][0]
    assert report.failed() == {"expiry"}
    assert re.search(r"node\.pem, is not valid before .+, and the clock says ", check.found), check
    assert check.advice == "set the clock of this machine, or wait"


def test_files_that_do_not_fit_together_are_named(tmp_path: Path) -> None:
    settings = certificates(tmp_path / "tls", "--host=127.0.0.1", "--client=kea")
    strangers = certificates(tmp_path / "strangers")
    cases = {
        "CERTIFICATE": (tmp_path / "none.pem", "cannot read worker.tls.certificate, "),
        "KEY": (Path(strangers["VOLARY_WORKER__TLS__KEY"]), "it does not match the certificate"),
        "AUTHORITIES": (Path(strangers["VOLARY_WORKER__TLS__AUTHORITIES"]), "none of the authorities in "),
    }
    for name, (file, found) in cases.items():
        report = worker(tmp_path, settings={**settings, f"VOLARY_WORKER__TLS__{name}": str(file)})
        assert report.failed() == {"certificates"}
        assert found in report.one("certificates").found
    of_client = {
        "VOLARY_WORKER__TLS__CERTIFICATE": str(tmp_path / "tls" / "kea.pem"),
        "VOLARY_WORKER__TLS__KEY": str(tmp_path / "tls" / "kea.key"),
    }
    report = worker(tmp_path, settings={**settings, **of_client})
    assert "it is not the certificate of a node" in report.one("certificates").found


def test_a_private_key_that_everybody_may_read_is_a_warning(tmp_path: Path) -> None:
    settings = certificates(tmp_path / "tls")
    key = tmp_path / "tls" / "node.key"
    key.chmod(0o644)
    check = worker(tmp_path, settings=settings).one("private key")
    assert check == Check(
        "warning", f"every user of this machine may use {key} (mode 0644)", f"close it to others: chmod o= {key}"
    )


# Other nodes


def test_a_gateway_that_is_not_there_is_a_warning_because_a_worker_waits(tmp_path: Path, gateway_port: str) -> None:
    arguments = ["--listen=127.0.0.1:0", f"--data-dir={tmp_path / 'data'}"]
    report = doctor("worker", f"--gateway={gateway_port}", *arguments)
    check = report.one("gateway")
    assert (report.code, check.status) == (0, "warning")
    assert check.found.startswith(f"{gateway_port} cannot be reached from here (")
    assert check.advice is not None
    assert check.advice.startswith("check that the node runs")
    report = doctor("worker", "--gateway=no.host.invalid:7100", *arguments)
    assert (report.code, report.one("gateway").status) == (0, "warning")
    assert report.one("gateway").found.startswith("the address no.host.invalid:7100 cannot be resolved")


def test_a_gateway_is_asked_without_joining_it(tmp_path: Path) -> None:
    with Processes(tmp_path, {"VOLARY_SECRET": SECRET}) as processes:
        address = processes.gateway.address
        arguments = ["--listen=127.0.0.1:0", f"--gateway={address}", f"--data-dir={tmp_path / 'new'}"]
        report = doctor("worker", *arguments, settings={"VOLARY_SECRET": SECRET})
        assert report.code == 0
        assert report.one("gateway").found == f"{address} answers, and has the same secret"
        assert report.one("clock").status == "ok"
        assert report.one("versions").status == "ok"
        assert report.one("join").found == "the gateway would let the worker join"
        assert processes.nodes("state") == {}

        report = doctor("worker", *arguments, settings={"VOLARY_SECRET": OTHER_SECRET})
        assert report.failed() == {"gateway"}
        assert "the worker's secret differs from this gateway's secret" in str(report.one("gateway"))

        unencrypted = certificates(tmp_path / "tls")
        report = doctor("worker", *arguments, settings={"VOLARY_SECRET": SECRET, **unencrypted})
        assert report.failed() == {"gateway"}
        assert "both sides use TLS or neither does" in str(report.one("gateway"))


def test_the_nodes_of_a_cluster_know_their_directories_and_each_other(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with Processes(tmp_path / "one") as processes, Processes(tmp_path / "two") as others:
        node = processes.add_worker()
        of_gateway = [f"--listen={processes.gateway.address}", f"--data-dir={processes.gateway.data_dir}"]
        of_worker = ["--listen=127.0.0.1:0", f"--data-dir={node.data_dir}"]

        # While they run, their directories and ports are in use.
        report = doctor("gateway", *of_gateway)
        assert report.failed() == {"data directory", "listen address"}
        assert "is in use by another process" in report.one("data directory").found
        assert report.one("workers").found == "1 worker can be reached from here"
        assert doctor("worker", "--offline", *of_worker).failed() == {"data directory"}

        processes.gateway.kill()
        report = doctor("gateway", *of_gateway)
        assert report.code == 0
        assert "belongs to the gateway of cluster" in report.one("data directory").found
        assert report.one("catalog").found == "it can be read, and knows 1 worker"
        assert report.one("workers").found == "1 worker can be reached from here"
        report = doctor("worker", "--offline", "--listen=127.0.0.1:0", f"--data-dir={processes.gateway.data_dir}")
        assert report.failed() == {"data directory"}
        assert "is the data directory of a gateway, not of a worker" in report.one("data directory").found

        node.kill()
        report = doctor("gateway", *of_gateway)
        assert (report.code, report.one("workers").status) == (0, "warning")
        assert report.one("workers").found.startswith(
            "1 of 1 worker cannot be reached from here: worker w1: 127.0.0.1:"
        )
        report = doctor("worker", *of_worker, f"--gateway={others.gateway.address}")
        assert re.search(r"belongs to worker w1 of cluster [0-9a-f-]{36}$", report.one("data directory").found)
        assert report.failed() == {"join"}
        assert "belongs to cluster" in report.one("join").found

        # Nothing of this has changed what the nodes need.
        processes.gateway.start()
        node.start()
        until(lambda: processes.nodes("state") == {"w1": "alive"}, "the worker is back")
        (processes.gateway.data_dir / "catalog.redb").rename(tmp_path / "catalog.redb")
        processes.gateway.kill()
        report = doctor("gateway", "--offline", *of_gateway)
        assert report.failed() == {"catalog"}
        assert "is missing" in report.one("catalog").found


def test_nodes_with_certificates_check_those_of_each_other(tmp_path: Path) -> None:
    of_worker = certificates(tmp_path / "tls")
    of_gateway = {name.replace("WORKER", "GATEWAY"): file for name, file in of_worker.items()}
    with Processes(tmp_path, {**of_worker, **of_gateway}) as processes:
        node = processes.add_worker()
        new = ["--listen=127.0.0.1:0", f"--gateway={processes.gateway.address}", f"--data-dir={tmp_path / 'new'}"]
        assert doctor("worker", *new, settings=of_worker).code == 0
        strangers = certificates(tmp_path / "strangers")
        report = doctor("worker", *new, settings=strangers)
        assert report.failed() == {"gateway"}
        assert "invalid peer certificate" in report.one("gateway").found

        # The gateway's own address is one of those that its certificate has.
        places = [f"--listen={processes.gateway.address}", f"--data-dir={processes.gateway.data_dir}"]
        assert doctor("gateway", *places, settings=of_gateway).one("workers").status == "ok"
        processes.gateway.kill()
        report = doctor("gateway", *places, settings=of_gateway)
        assert report.code == 0
        assert report.one("workers").found == "1 worker can be reached from here"
        report = doctor("gateway", *places, settings=certificates(tmp_path / "strangers", "--renew", role="GATEWAY"))
        assert (report.code, report.one("workers").status) == (0, "warning")
        assert f"worker {node.id}: 127.0.0.1:" in report.one("workers").found
        assert "cannot be reached over TLS (invalid peer certificate" in report.one("workers").found


def test_users_need_a_secret(tmp_path: Path) -> None:
    settings = {"VOLARY_SECRET": SECRET, "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": "correct horse battery"}
    with Processes(tmp_path, settings) as processes:
        arguments = [f"--listen={processes.gateway.address}", f"--data-dir={processes.gateway.data_dir}"]
        report = doctor("gateway", *arguments, settings={"VOLARY_SECRET": SECRET})
        assert report.one("workers").status == "warning"
        assert report.one("workers").advice == "`volary status` shows them after a login"
        processes.gateway.kill()
        assert doctor("gateway", "--offline", *arguments, settings={"VOLARY_SECRET": SECRET}).code == 0
        report = doctor("gateway", "--offline", *arguments)
        assert report.failed() == {"secret"}
        assert any("a cluster with users needs a secret" in check.found for check in report.checks["secret"])


def answer_of_a_gateway(ahead_ms: int, version: str = VERSION) -> Callable[[str, bytes], bytes | None]:
    """Returns the answers of a gateway whose clock is ahead by this time."""
    seal = Seal.of_secret(SECRET)

    def answer(action: str, body: bytes) -> bytes | None:
        if action != "volary.check":
            return None
        nonce = pb.fields(content(body))[2]
        now_ms = int(time.time() * 1000) + ahead_ms
        said = pb.field(1, nonce) + pb.field(2, version) + pb.field(3, "a cluster") + pb.field(4, now_ms)
        return seal(Purpose.CHECK_ANSWER, said, now_ms // 1000 + 60)

    return answer


@pytest.mark.parametrize("hours", [-2, 2])
def test_clocks_that_differ_by_hours_are_named(tmp_path: Path, hours: int) -> None:
    with RogueGateway(answer_of_a_gateway(hours * HOUR_MS)) as gateway:
        report = doctor(
            "worker",
            "--listen=127.0.0.1:0",
            f"--gateway={gateway.address}",
            f"--data-dir={tmp_path / 'data'}",
            settings={"VOLARY_SECRET": SECRET},
        )
    check = report.one("clock")
    assert report.failed() == {"clock"}
    relation = "behind" if hours > 0 else "ahead of"
    assert re.match(rf"it is [67]\d\d\d\.\d s {relation} the clock of the gateway at ", check.found), check
    assert check.advice is not None
    assert "time service" in check.advice


def test_an_answer_that_is_not_new_is_refused(tmp_path: Path) -> None:
    seal = Seal.of_secret(SECRET)
    old = pb.field(1, b"another nonce") + pb.field(2, VERSION)
    answers: dict[str, Callable[[str, bytes], bytes | None]] = {
        "the answer is that of an earlier question": lambda _action, _body: seal(Purpose.CHECK_ANSWER, old, 2**40),
        "was not sealed by this cluster": lambda _action, _body: Seal.of_secret(OTHER_SECRET)(
            Purpose.CHECK_ANSWER, old, 2**40
        ),
        "the answer has no message": lambda _action, _body: None,
    }
    for said, answer in answers.items():
        with RogueGateway(answer) as gateway:
            report = doctor(
                "worker",
                "--listen=127.0.0.1:0",
                f"--gateway={gateway.address}",
                f"--data-dir={tmp_path / 'data'}",
                settings={"VOLARY_SECRET": SECRET},
            )
        assert report.failed() == {"gateway"}
        assert said in str(report.one("gateway"))
        assert not any(told.contains(SECRET) for told in gateway.received)


def test_a_directory_of_another_user_is_named(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a directory to another user")
    data = tmp_path / "data"
    data.mkdir()
    os.chown(data, 4711, 4711)
    check = worker(tmp_path).one("data directory")
    assert check.status == "warning"
    assert check.found == f"{data} belongs to the user with the number 4711, and volary doctor runs as root"
