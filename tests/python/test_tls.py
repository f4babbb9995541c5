"""Tests TLS between clients and a gateway and between nodes, and certificates that are replaced while nodes run."""

from __future__ import annotations

import shutil
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import adbc_driver_manager as adbc
import grpc
import pyarrow as pa
import pytest
from adbc_driver_flightsql import DatabaseOptions, dbapi
from certificates import Certificates
from cluster import LocalCluster
from node_messages import SOON, Addressee, control, introduction, join, part_of, write
from processes import PATIENCE_SECONDS, Process, Processes, run, until
from pyarrow import flight
from rogue_gateway import RogueGateway
from seals import Purpose, Seal, content

import volary

pytestmark = pytest.mark.server

SECRET = "a secret of nodes 5533"
NO_NODE = "is not the certificate of a node"
OF_KEA = ("--host=localhost", "--host=127.0.0.1", "--client=kea")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"), *OF_KEA)


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Certificates of another authority."""
    return Certificates(tmp_path_factory.mktemp("strangers"), *OF_KEA)


@pytest.fixture(scope="module")
def encrypted(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[LocalCluster]:
    """A cluster that serves TLS to all clients that trust its authority."""
    settings = certificates.of_node("GATEWAY")
    with LocalCluster(tmp_path_factory.mktemp("encrypted"), workers=2, settings=settings) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def mutual(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[LocalCluster]:
    """A cluster that serves only clients that show a certificate."""
    settings = certificates.of_node("GATEWAY", require_client_certificates="true")
    with LocalCluster(tmp_path_factory.mktemp("mutual"), workers=2, settings=settings) as cluster:
        yield cluster


def test_an_authority_that_is_not_trusted_is_said_with_and_without_a_password(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = Certificates(tmp_path / "other", *OF_KEA)
    settings = certificates.of_node("GATEWAY")
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster:
        for login in ({}, {"username": "kea", "password": "a password"}, {"token": "a token"}):
            with pytest.raises(volary.UnavailableError, match=r"no gateway answers at .* handshake failed"):
                volary.connect(cluster.uri, tls_ca=other.file("authority.pem"), **login)


def test_clients_connect_by_tls_and_by_nothing_else(encrypted, certificates, strangers):
    assert encrypted.uri.startswith("grpc+tls://")
    authority = certificates.file("authority.pem")
    with volary.connect(encrypted.uri, tls_ca=authority) as connection:
        connection.sql("CREATE TABLE eggs (k BIGINT) WITH (shard_key = 'k', shards = 4)")
        connection.sql("INSERT INTO eggs SELECT * FROM generate_series(1, 1000)")
        assert connection.sql("SELECT count(*), sum(k) FROM eggs").rows() == [(1000, 500500)]
    with (
        dbapi.connect(
            encrypted.uri, db_kwargs={DatabaseOptions.TLS_ROOT_CERTS.value: authority.read_text()}, autocommit=True
        ) as driver,
        driver.cursor() as cursor,
    ):
        cursor.execute("SELECT count(*) FROM eggs")
        assert cursor.fetchall() == [(1000,)]
    with flight.connect(encrypted.uri, tls_root_certs=authority.read_bytes()) as client:
        ticket = client.get_flight_info(flight.FlightDescriptor.for_command(b"SELECT 7 AS n")).endpoints[0].ticket
        assert client.do_get(ticket).read_all().to_pydict() == {"n": [7]}
    query = "SELECT count(*) FROM eggs"
    shown = run("volary", "sql", f"--gateway={encrypted.uri}", f"--tls-ca={authority}", "--output=csv", query)
    assert shown.out.split() == ["count(*)", "1000"]

    for refused in ({"tls_ca": strangers.file("authority.pem")}, {}):
        with pytest.raises(volary.UnavailableError, match="no gateway answers"):
            volary.connect(encrypted.uri, **refused)
    with pytest.raises(volary.UnavailableError):
        volary.connect(encrypted.uri.replace("grpc+tls", "grpc"), timeout=PATIENCE_SECONDS).sql("SELECT 1")
    unknown = run("volary", "sql", f"--gateway={encrypted.uri}", query)
    assert unknown.code != 0
    assert "UNAVAILABLE" in unknown.err
    plain = run("volary", "sql", f"--gateway={encrypted.uri}".replace("grpc+tls", "grpc"), query)
    assert plain.code != 0


def test_clients_without_a_certificate_are_refused_where_one_is_required(mutual, certificates, strangers):
    with volary.connect(mutual.uri, **certificates.of_client("kea")) as connection:
        assert connection.sql("SELECT 7").rows() == [(7,)]
    flags = [
        f"--tls-ca={certificates.file('authority.pem')}",
        f"--tls-certificate={certificates.file('kea.pem')}",
        f"--tls-key={certificates.file('kea.key')}",
    ]
    assert run("volary", "sql", f"--gateway={mutual.uri}", "--output=csv", *flags, "SELECT 7 AS n").out.split() == [
        "n",
        "7",
    ]
    assert run("volary", "sql", f"--gateway={mutual.uri}", flags[0], "SELECT 7").code != 0
    shown = certificates.of_client("kea")
    stranger = shown | {"tls_certificate": strangers.file("kea.pem"), "tls_key": strangers.file("kea.key")}
    for arguments in ({"tls_ca": shown["tls_ca"]}, stranger):
        with pytest.raises(volary.UnavailableError):
            volary.connect(mutual.uri, timeout=PATIENCE_SECONDS, **arguments).sql("SELECT 1").rows()


def test_handshakes_that_stall_are_ended_and_hold_nobody_up(encrypted, certificates):
    host, port = encrypted.uri.removeprefix("grpc+tls://").rsplit(":", 1)
    # The head of a ClientHello, without its body.
    begun = bytes([22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3])
    stalled = [socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS) for _ in range(300)]
    try:
        for connection in stalled[::2]:
            connection.sendall(begun)
        with volary.connect(
            encrypted.uri, tls_ca=certificates.file("authority.pem"), timeout=PATIENCE_SECONDS
        ) as honest:
            assert honest.sql("SELECT 7").rows() == [(7,)]
        for connection in stalled:
            assert connection.recv(1) == b""
    finally:
        for connection in stalled:
            connection.close()


def test_clients_may_have_an_authority_of_their_own(tmp_path, certificates, strangers):
    settings = certificates.of_node(
        "GATEWAY", client_authorities=str(strangers.file("authority.pem")), require_client_certificates="true"
    )
    shown = {
        "tls_ca": certificates.file("authority.pem"),
        "tls_certificate": strangers.file("kea.pem"),
        "tls_key": strangers.file("kea.key"),
    }
    with LocalCluster(tmp_path, workers=1, settings=settings) as cluster, volary.connect(cluster.uri, **shown) as kea:
        assert kea.sql("SELECT 7").rows() == [(7,)]


def test_nodes_show_each_other_certificates(tmp_path, certificates, strangers):
    settings = certificates.of_nodes()
    settings["VOLARY_GATEWAY__GATHER__RELAYS"] = "2"
    with Processes(tmp_path, settings) as processes:
        workers = [processes.add_worker() for _ in range(3)]
        authority = certificates.file("authority.pem")
        with volary.connect(processes.gateway.uri, tls_ca=authority) as connection:
            connection.sql("CREATE TABLE eggs (k BIGINT) WITH (shard_key = 'k', shards = 8)")
            connection.sql("INSERT INTO eggs SELECT * FROM generate_series(1, 1000)")
            assert connection.sql("SELECT count(*), sum(k) FROM eggs").rows() == [(1000, 500500)]
            connection.sql("SET relays = 2")
            groups = connection.sql("SELECT k % 7, count(*) FROM eggs GROUP BY 1").rows()
            assert sum(count for _, count in groups) == 1000
            assert "relays" in str(connection.sql("EXPLAIN SELECT k % 7, count(*) FROM eggs GROUP BY 1").rows())
        port = int(workers[0].running().await_ready().rsplit(":", 1)[1])
        ca = authority.read_bytes()
        for identity in (None, strangers):
            files = {}
            if identity is not None:
                files = {
                    "cert_chain": identity.file("kea.pem").read_bytes(),
                    "private_key": identity.file("kea.key").read_bytes(),
                }
            with (
                flight.connect(f"grpc+tls://localhost:{port}", tls_root_certs=ca, **files) as client,
                pytest.raises(flight.FlightUnavailableError),
            ):
                client.list_actions(flight.FlightCallOptions(timeout=PATIENCE_SECONDS))
        # A worker that trusts another authority, a worker without TLS and a client that pretends to be a worker cannot
        # join.
        kea = {"certificate": str(certificates.file("kea.pem")), "key": str(certificates.file("kea.key"))}
        for name, others, said, is_refused in (
            ("of_another_authority", strangers.of_node("WORKER"), "gateway", False),
            ("without_tls", dict.fromkeys(certificates.of_node("WORKER"), ""), "gateway", False),
            ("a_client", certificates.of_node("WORKER", **kea), NO_NODE, True),
        ):
            given = {key: value for key, value in {**settings, **others}.items() if value}
            stranger = Process(
                tmp_path,
                name,
                [
                    "worker",
                    "--listen=127.0.0.1:0",
                    f"--gateway={processes.gateway.address}",
                    f"--data-dir={tmp_path / name}",
                ],
                given,
            )
            until(lambda stranger=stranger, said=said: said in stranger.log(), "it has tried to join")
            # A refused worker ends. A worker that finds no gateway continues to look for one.
            if is_refused:
                assert stranger.await_failure()[0] == 1
            else:
                assert stranger.is_alive()
                stranger.kill()
        with volary.connect(processes.gateway.uri, tls_ca=authority) as connection:
            assert connection.sql("SELECT count(*) FROM system.nodes WHERE role = 'worker'").rows() == [(3,)]


@pytest.fixture(scope="module")
def with_secret(tmp_path_factory: pytest.TempPathFactory, certificates: Certificates) -> Iterator[Processes]:
    """A gateway and a worker with certificates of nodes, a secret, and a table."""
    settings = certificates.of_nodes() | {"VOLARY_SECRET": SECRET}
    with Processes(tmp_path_factory.mktemp("with_secret"), settings) as processes:
        processes.add_worker()
        with volary.connect(processes.gateway.uri, tls_ca=certificates.file("authority.pem")) as connection:
            connection.sql("CREATE TABLE eggs AS SELECT value AS k FROM generate_series(1, 1000)")
        yield processes


def shows(certificates: Certificates, name: str, uri: str) -> flight.FlightClient:
    """Connects to a node with the certificate `name`."""
    return flight.connect(
        f"grpc+tls://localhost:{uri.rsplit(':', 1)[1]}",
        tls_root_certs=certificates.file("authority.pem").read_bytes(),
        cert_chain=certificates.file(f"{name}.pem").read_bytes(),
        private_key=certificates.file(f"{name}.key").read_bytes(),
    )


def fragment(client: flight.FlightClient) -> bytes:
    """Returns the fragment that a gateway asks the worker for, before it is sealed."""
    direct = flight.FlightCallOptions(headers=[(b"volary-direct-results", b"on")], timeout=PATIENCE_SECONDS)
    query = flight.FlightDescriptor.for_command(b"SELECT k FROM eggs")

    def part() -> bytes | None:
        (endpoint, *_) = client.get_flight_info(query, direct).endpoints
        return part_of(content(endpoint.ticket.ticket)) if endpoint.locations else None

    # Workers report the address for clients, so the gateway knows it only after their reports.
    return until(part, "the worker has reported") or b""


OF_GATEWAYS = ["a command", "a fragment", "a write"]
OF_WORKERS = ["an introduction", "a join"]


@pytest.mark.parametrize("has_header", [True, False], ids=["with the header of nodes", "without the header of nodes"])
@pytest.mark.parametrize("what", [*OF_GATEWAYS, *OF_WORKERS])
def test_a_clients_certificate_and_the_secret_make_no_node(with_secret, certificates, what, has_header):
    """A caller with the secret but only a client's certificate cannot act as a gateway or as a worker."""
    (worker,) = with_secret.workers
    to, seal = Addressee.of(worker), Seal.of_secret(SECRET)
    headers = [tuple(part.encode() for part in seal.node_header(SOON))] if has_header else []
    options = flight.FlightCallOptions(headers=headers, timeout=PATIENCE_SECONDS)
    with shows(certificates, "kea", with_secret.gateway.uri) as client:
        part = fragment(client)

    def act(client: flight.FlightClient, action: str, sealed: bytes) -> None:
        list(client.do_action(flight.Action(action, sealed), options))

    def put(client: flight.FlightClient, sealed: bytes) -> None:
        descriptor = flight.FlightDescriptor.for_command(sealed)
        writer, reader = client.do_put(descriptor, pa.schema([("k", pa.int64())]), options)
        with writer:
            writer.done_writing()
            reader.read()

    calls: dict[str, Callable[[flight.FlightClient], object]] = {
        "a command": lambda client: act(
            client, "volary.control", seal(Purpose.CONTROL, control(to, "ListSegments"), SOON)
        ),
        "a fragment": lambda client: list(client.do_get(flight.Ticket(seal(Purpose.FRAGMENT, part, SOON)), options)),
        # The write is for an earlier start of the worker. The worker notices that after it has opened the seal.
        "a write": lambda client: put(client, seal(Purpose.WRITE, write(to, 1), SOON)),
        "an introduction": lambda client: act(
            client, "volary.introduce", seal(Purpose.INTRODUCTION, introduction(None), SOON)
        ),
        # The content is invalid. The gateway notices that after it has opened the seal.
        "a join": lambda client: act(client, "volary.join", seal(Purpose.MEMBERSHIP, join("no id"), SOON)),
    }
    uri = worker.running().await_ready() if what in OF_GATEWAYS else with_secret.gateway.uri
    said = {}
    for who in ("node", "kea"):
        with shows(certificates, who, uri) as client:
            try:
                calls[what](client)
                said[who] = "nothing"
            except (pa.ArrowException, OSError) as error:
                said[who] = f"{type(error).__name__}: {error}"
    assert NO_NODE not in said["node"], said
    assert said["kea"].startswith("FlightUnauthorizedError: "), said
    assert NO_NODE in said["kea"], said


def test_a_client_plays_no_gateway(tmp_path, certificates):
    """A worker sends nothing to a server whose certificate is from the authority, but is not that of a node."""
    key, certificate = (certificates.file(name).read_bytes() for name in ("kea.key", "kea.pem"))
    settings = certificates.of_node("WORKER") | {"VOLARY_SECRET": SECRET}
    with RogueGateway(
        lambda _action, _body: None, credentials=grpc.ssl_server_credentials([(key, certificate)])
    ) as rogue:
        arguments = ["worker", "--listen=127.0.0.1:0", f"--gateway={rogue.address}", f"--data-dir={tmp_path / 'data'}"]
        worker = Process(tmp_path, "worker", arguments, settings)
        try:
            until(lambda: "waiting for the gateway" in worker.log(), "the worker does not join")
            assert "extended key usage" in worker.log()
        finally:
            worker.kill()
    assert rogue.received == []


def shown_by(cluster: LocalCluster) -> bytes:
    """Returns the certificate that a new connection gets."""
    address = cluster.uri.removeprefix("grpc+tls://").rsplit(":", 1)
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    with (
        socket.create_connection((address[0], int(address[1])), timeout=PATIENCE_SECONDS) as connection,
        context.wrap_socket(connection) as encrypted,
    ):
        return encrypted.getpeercert(binary_form=True) or b""


def test_certificates_are_replaced_while_nodes_run(tmp_path, certificates):
    own = Certificates.__new__(Certificates)
    own.directory = tmp_path / "certificates"
    shutil.copytree(certificates.directory, own.directory)
    authority = own.file("authority.pem")
    with LocalCluster(tmp_path, workers=2, settings=own.of_node("GATEWAY")) as cluster:
        with volary.connect(cluster.uri, tls_ca=authority) as connection:
            connection.sql("CREATE TABLE eggs AS SELECT 7 AS k")
            first = shown_by(cluster)
            own.make("--host=127.0.0.1", "--renew")
            until(lambda: shown_by(cluster) != first, "the new certificate is shown")
            # Existing connections continue, and new ones can be opened, also to the workers.
            assert connection.sql("SELECT k FROM eggs").rows() == [(7,)]
        second = shown_by(cluster)
        own.file("node.key").write_text("no key")
        until(lambda: "cannot be used; the previous ones stay in use" in cluster.log(), "it is said")
        assert shown_by(cluster) == second
        assert "node.key" in cluster.log()
        with volary.connect(cluster.uri, tls_ca=authority) as connection:
            assert connection.sql("SELECT k FROM eggs").rows() == [(7,)]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"CERTIFICATE": "{dir}/node.pem"}, ["gateway.tls.certificate and key belong together"]),
        ({"CERTIFICATE": "{dir}/none.pem", "KEY": "{dir}/node.key"}, ["gateway.tls.certificate", "none.pem"]),
        ({"CERTIFICATE": "{dir}/node.key", "KEY": "{dir}/node.key"}, ["node.key", "holds no certificate in PEM"]),
        (
            {"CERTIFICATE": "{dir}/node.pem", "KEY": "{dir}/node.pem"},
            ["gateway.tls.key", "holds no private key in PEM"],
        ),
        (
            {"CERTIFICATE": "{dir}/node.pem", "KEY": "{dir}/kea.key"},
            ["gateway.tls.key", "does not match the certificate"],
        ),
        ({"REQUIRE_CLIENT_CERTIFICATES": "true"}, ["gateway.tls.certificate is needed"]),
    ],
)
def test_files_that_cannot_be_used_are_named(tmp_path, certificates, settings, words):
    given = {f"VOLARY_GATEWAY__TLS__{key}": it.format(dir=certificates.directory) for key, it in settings.items()}
    ended = run("volary", "gateway", "--listen=127.0.0.1:0", f"--data-dir={tmp_path}", settings=given)
    assert ended.code != 0
    for word in words:
        assert word in ended.err


def test_keys_are_readable_by_their_owner_alone(certificates):
    for name in ("authority.key", "node.key", "kea.key"):
        assert certificates.file(name).stat().st_mode & 0o077 == 0
    again = run("volary", "certificates", f"--dir={certificates.directory}")
    assert again.code != 0
    assert "--renew" in again.err


def test_a_driver_says_what_is_wrong_with_a_certificate(encrypted, strangers):
    authority = strangers.file("authority.pem").read_text()
    options = {DatabaseOptions.TLS_ROOT_CERTS.value: authority}
    with (
        dbapi.connect(encrypted.uri, db_kwargs=options, autocommit=True) as driver,
        driver.cursor() as cursor,
        pytest.raises(adbc.Error, match="certificate"),
    ):
        cursor.execute("SELECT 1")
