"""A cluster with users, a secret and a table that not everybody may read. Checks everything that its nodes answer and
log.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cluster import ADMIN_PASSWORD
from processes import PATIENCE_SECONDS, Processes, Worker
from pyarrow import flight
from raw_flight import OK, Node, basic, bearer
from seals import MAC_BYTES, Seal

SECRET = "a secret of nodes 5530"
OTHER_SECRET = "a secret of nodes 5531"
PASSWORD = "the password of kea 5532"

TABLE = "whisperers"
COLUMN = "murmur"
VALUE = "kakapo4711"
MARKERS = (TABLE, COLUMN, VALUE)
"""Texts that users who may not read the table must not see anywhere."""
ROWS = 40
QUERY = f"SELECT k, {COLUMN} FROM {TABLE}"
INSERT = f"INSERT INTO {TABLE} VALUES (7, '{VALUE}')"

_SHORTEST_SECRET = 8
_TOKEN = re.compile(r"(volary-(?:session|bearer|token))-[0-9a-f]{8}")


class Secured(Processes):
    """A cluster where `kea` may read and write the table, and `auk` may do nothing. `record` notes texts that must
    appear in no log.
    """

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__(
            directory,
            {
                "VOLARY_SECRET": SECRET,
                "VOLARY_GATEWAY__SECURITY__ADMIN_PASSWORD": ADMIN_PASSWORD,
                "VOLARY_WORKER__CLIENTS__LISTEN": "127.0.0.1:0",
                "VOLARY_LOG__FILTER": "debug",
                **(settings or {}),
            },
        )
        self.seal = Seal.of_secret(SECRET)
        """The seal for the messages between nodes."""
        self._secrets: dict[str, str] = {}
        self._nodes: list[Node] = []
        for what, secret in {
            "the nodes' secret": SECRET,
            "the nodes' other secret": OTHER_SECRET,
            "the administrator's password": ADMIN_PASSWORD,
            "the users' password": PASSWORD,
        }.items():
            self.record(what, secret)

    def __exit__(self, *of_the_test: object) -> None:
        for node in self._nodes:
            node.__exit__()
        super().__exit__(*of_the_test)

    def populate(self) -> None:
        """Creates the users and the table."""
        self.gateways_seal = Seal.of_gateways(self.gateway.data_dir / "catalog.redb")
        """The seal that gateways use for what clients get."""
        first = self.log_in("admin", ADMIN_PASSWORD)
        (row,) = self.run_as(first, "CREATE TOKEN of_the_tests")
        self._admin = bearer(row["token"])
        self.record_header("the administrator", self._admin)
        for user in ("kea", "auk"):
            self.administer(f"CREATE USER {user} PASSWORD '{PASSWORD}'")
        self.administer(
            f"CREATE TABLE {TABLE} (k BIGINT, {COLUMN} VARCHAR) WITH (shard_key = 'k', shards = 8)",
            f"INSERT INTO {TABLE} SELECT value, '{VALUE}' FROM generate_series(1, {ROWS})",
            f"GRANT SELECT, INSERT ON {TABLE} TO kea",
        )

    def administer(self, *statements: str) -> list[dict[str, Any]]:
        """Runs statements as the administrator, and returns the rows of the last one."""
        return self.run_as(self._admin, *statements)

    def run_as(self, authorization: str, *statements: str) -> list[dict[str, Any]]:
        """Runs statements with these credentials, and returns the rows of the last one."""
        options = flight.FlightCallOptions(
            headers=[(b"authorization", authorization.encode())], timeout=PATIENCE_SECONDS
        )
        rows: list[dict[str, Any]] = []
        with flight.connect(self.gateway.uri) as client:
            for statement in statements:
                info = client.get_flight_info(flight.FlightDescriptor.for_command(statement.encode()), options)
                rows = client.do_get(info.endpoints[0].ticket, options).read_all().to_pylist()
        return rows

    def rows(self) -> int:
        """Counts the rows of the table by reading them."""
        return self.administer(f"SELECT count({COLUMN}) AS n FROM {TABLE} WHERE k > 0")[0]["n"]

    # Connections and credentials

    def node(self, uri: str) -> Node:
        """Returns a connection to a node, which is closed with the cluster."""
        node = Node(uri)
        self._nodes.append(node)
        return node

    @staticmethod
    def uri_of(worker: Worker) -> str:
        """Returns the address at which gateways connect to a worker."""
        return worker.running().await_ready().rsplit(" ", 1)[1]

    def log_in(self, user: str, password: str = PASSWORD) -> str:
        """Logs in, and returns the authorization header of the new session."""
        with Node(self.gateway.uri) as gateway:
            answer = gateway.call("Handshake", b"", authorization=basic(user, password))
        assert answer.code == OK, answer
        header = answer.headers["authorization"]
        self.record_header(f"a session of {user}'s", header)
        return header

    def create_token(self, user: str, name: str, valid_for: str = "1 day") -> str:
        """Creates a token for a user, and returns its authorization header."""
        (row,) = self.administer(f"CREATE TOKEN {name} FOR {user} VALID FOR '{valid_for}'")
        self.record_header(f"the token {name}", bearer(row["token"]))
        return bearer(row["token"])

    # Secrets that must be in no log

    def record(self, what: str, secret: str) -> None:
        """Records a secret. Texts that are too short to search for are ignored."""
        if len(secret) >= _SHORTEST_SECRET:
            self._secrets[secret] = what

    def record_header(self, what: str, header: str) -> None:
        """Records the credentials in an authorization header."""
        scheme, _, shown = header.partition(" ")
        # The part before the last dash is the same for all tokens.
        self.record(f"the header of {what}", shown.rstrip("=").rpartition("-")[2])
        if scheme == "Basic":
            self.record(f"the password of {what}", base64.b64decode(shown).decode().partition(":")[2])

    def record_sealed(self, what: str, sealed: bytes) -> None:
        """Records a sealed message in all forms in which a log may write bytes.

        Only the seal at its end is recorded, because no log can contain it by chance.
        """
        mac = sealed[-MAC_BYTES:]
        self.record(what, mac.hex())
        self.record(what, mac.hex().upper())
        self.record(what, ", ".join(str(byte) for byte in mac))
        self.record(what, "".join(_escaped(byte) for byte in mac))
        for skipped in range(3):
            # Records the base64 text for each alignment in a longer text, without its ends, which other bytes affect.
            self.record(what, base64.b64encode(sealed[-30 + skipped :])[4:-4].decode())

    def secrets_in(self, text: str) -> set[str]:
        """Returns the descriptions of the recorded secrets in the text, and of all tokens in it, recorded or not."""
        kept = {what for secret, what in self._secrets.items() if secret in text}
        return kept | {f"a {token}" for token in _TOKEN.findall(text)}

    def assert_nothing_secret_was_said(self) -> None:
        """Checks that no log, output, file, list of statements or answer contains a secret."""
        assert len(self._secrets) > 4, "the tests have recorded no secret"
        processes = ["gateway", *(worker.name for worker in self.workers)]
        for name in processes:
            log = (self.directory / f"{name}.log").read_text()
            assert " DEBUG " in log or " TRACE " in log, f"{name} does not log in detail"
            assert "panicked" not in log, next(line for line in log.splitlines() if "panicked" in line)
        for file in sorted(path for path in self.directory.rglob("*") if path.is_file()):
            found = self.secrets_in(file.read_bytes().decode(errors="replace"))
            assert not found, f"{file.name} has {found}"
        for table in ("system.queries", "system.query_log", "system.tokens", "system.users", "system.nodes"):
            rows = self.administer(f"SELECT * FROM {table}")
            assert rows, table
            assert not (found := self.secrets_in(str(rows))), f"{table} has {found}"
        texts = {text for node in self._nodes for text in node.texts}
        assert any(texts), "the tests have seen no error"
        assert not (found := self.secrets_in("\n".join(texts))), f"an error has {found}"

    def assert_serves(self) -> None:
        """Checks that all processes run, that none has panicked, and that the table can be read from all of them."""
        for node in [self.gateway, *self.workers]:
            assert node.running().is_alive(), f"{node.name} has ended\n{node.running().tail()}"
            assert "panicked" not in node.running().log(), f"{node.name}\n{node.running().tail()}"
        assert self.administer(f"SELECT min({COLUMN}) AS v FROM {TABLE} WHERE k > 0") == [{"v": VALUE}]


def _escaped(byte: int) -> str:
    """Returns a byte as Rust writes it in a byte string."""
    short = {9: "\\t", 10: "\\n", 13: "\\r", 34: '\\"', 92: "\\\\", 0: "\\0"}
    return short.get(byte) or (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}")


@contextmanager
def secured_cluster(directory: Path, settings: Mapping[str, str] | None = None) -> Iterator[Secured]:
    """Starts a cluster with two workers, the users and the table."""
    with Secured(directory, settings) as cluster:
        for _ in range(2):
            cluster.add_worker()
        cluster.populate()
        yield cluster
