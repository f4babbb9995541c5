"""A cluster of separate processes. A test can kill, stop and restart each of them."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from proxy import Proxy

import volary

PATIENCE_SECONDS = 60.0
"""How long a test waits for something that must happen. Even on a slow machine, only a hang takes longer."""
# Most conditions ask a cluster something. The pause grows with the wait, so that a long wait takes little of the
# processors and still ends at most a tenth too late.
_SHORTEST_PAUSE_SECONDS = 0.01
_LONGEST_PAUSE_SECONDS = 0.25
_READY = "listening on grpc"
_REPOSITORY = Path(__file__).resolve().parents[2]

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Calls `condition` until its result is true, and returns the result. Fails after `seconds`."""
    began = time.monotonic()
    while not (answer := condition()):
        waited = time.monotonic() - began
        assert waited < seconds, f"not within {seconds} s: {what}"
        time.sleep(min(max(waited / 10, _SHORTEST_PAUSE_SECONDS), _LONGEST_PAUSE_SECONDS))
    return answer


@contextmanager
def within(seconds: float = PATIENCE_SECONDS) -> Iterator[None]:
    """Fails if its block takes longer than `seconds`."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"took {took:.1f} s, not less than {seconds} s"


def binary(name: str) -> Path:
    """Returns the path of the program `name`. VOLARY_BIN is the path of `volary`; the other programs are in its
    directory.
    """
    if "VOLARY_BIN" in os.environ:
        found = Path(os.environ["VOLARY_BIN"]).with_name(name)
    else:
        found = Path(os.environ.get("CARGO_TARGET_DIR", _REPOSITORY / "target")) / "release" / name
    if not found.is_file():
        raise FileNotFoundError(f"{found} does not exist: build it with `cargo build --release`, or set VOLARY_BIN")
    return found


def status_bytes(pid: int, name: str) -> int:
    """Returns a size from the system's status of a process. VmRSS is the present memory, and VmHWM is its peak."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


class Ended(NamedTuple):
    """The exit code and the output of a program that has ended."""

    code: int
    out: str
    err: str


def run(
    name: str,
    *arguments: str | Path,
    stdin: str = "",
    settings: Mapping[str, str] | None = None,
    seconds: float = PATIENCE_SECONDS,
) -> Ended:
    """Runs a program to its end. Its standard input is not a terminal."""
    done = subprocess.run(
        [binary(name), *arguments],
        input=stdin.encode(),
        capture_output=True,
        env=environment(settings or {}),
        timeout=seconds,
        check=False,
    )
    return Ended(done.returncode, done.stdout.decode(), done.stderr.decode())


def environment(settings: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment of a process, without the Volary settings of the user who runs the tests."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith("VOLARY_")}, **settings}


class Process:
    """A `volary` process with one subcommand.

    Its output is in `<directory>/<name>.out`, and its log in `<directory>/<name>.log`.
    """

    def __init__(self, directory: Path, name: str, arguments: list[str], settings: Mapping[str, str]) -> None:
        self._command = [str(binary("volary")), *arguments]
        self._output = directory / f"{name}.out"
        self._log = directory / f"{name}.log"
        with self._output.open("w") as output, self._log.open("a") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=log,
                env=environment(settings),
            )

    def await_ready(self) -> str:
        """Waits for the line that says where the process listens, and returns it."""

        def ready() -> str | None:
            assert self._process.poll() is None, f"{self._command} has ended\n{self.tail()}"
            lines = self.output().splitlines(keepends=True)
            return next((line.strip() for line in lines if _READY in line and line.endswith("\n")), None)

        return until(ready, f"{self._command} is ready") or ""

    def output(self) -> str:
        """Returns what the process has printed."""
        return self._output.read_text()

    def log(self) -> str:
        """Returns what the process has logged."""
        return self._log.read_text()

    def tail(self) -> str:
        """Returns the last lines of the log."""
        return "\n".join(self.log().splitlines()[-30:])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal to the process."""
        self._process.send_signal(number)

    def limit_address_space(self, limit_bytes: int) -> None:
        """Limits the address space. Further mappings fail if the process then has more than `limit_bytes`."""
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    def limit_growth(self, limit_bytes: int) -> None:
        """Limits the growth of the address space to `limit_bytes`.

        What is already mapped does not count: code, stacks that are hardly used, and memory that the allocator keeps.
        """
        self.limit_address_space(status_bytes(self._process.pid, "VmSize") + limit_bytes)

    def memory_bytes(self) -> int:
        """Returns the resident memory of the process."""
        return status_bytes(self._process.pid, "VmRSS")

    def peak_memory_bytes(self) -> int:
        """Returns the peak of the resident memory of the process."""
        return status_bytes(self._process.pid, "VmHWM")

    def kill(self) -> None:
        """Sends SIGKILL, so that the process writes nothing more."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """Sends SIGTERM. The process must then end with exit code 0."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        try:
            code = self._process.wait(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"{self._command} did not end on SIGTERM within {PATIENCE_SECONDS} s\n{self.tail()}"
            ) from None
        assert code == 0, f"{self._command} ended with {code} on SIGTERM\n{self.tail()}"

    def is_alive(self) -> bool:
        """Returns whether the process runs."""
        return self._process.poll() is None

    def await_end(self) -> int:
        """Waits until the process has ended by itself, and returns its exit code."""
        return self._process.wait(timeout=PATIENCE_SECONDS)

    def await_failure(self) -> tuple[int, str]:
        """Waits until the process has failed by itself. Returns its exit code and the last line of its log."""
        code = self._process.wait(timeout=PATIENCE_SECONDS)
        return code, self._log.read_text().splitlines()[-1]


class Node:
    """A gateway or a worker: its data directory, and the process that uses the directory now."""

    def __init__(self, directory: Path, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.data_dir = directory / name
        self._directory = directory
        self._settings = settings
        self.process: Process | None = None
        self.variables: Mapping[str, str] = {}
        """Environment variables of the processes that are started from now on."""

    def launch(self) -> None:
        """Starts the process without waiting for anything."""
        raise NotImplementedError

    def await_ready(self) -> None:
        """Waits until the node is ready."""
        raise NotImplementedError

    def start(self) -> None:
        """Starts or restarts the node."""
        self.launch()
        self.await_ready()

    def begin(self, arguments: list[str]) -> Process:
        """Starts the process without waiting for anything."""
        arguments = [*arguments, f"--data-dir={self.data_dir}"]
        self.process = Process(self._directory, self.name, arguments, {**self._settings, **self.variables})
        return self.process

    def running(self) -> Process:
        """Returns the process, which must have been started."""
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        """Sends SIGKILL to the process."""
        self.running().kill()

    def end(self) -> None:
        """Kills the process if it still runs, whatever the test did."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()


class HeldPort:
    """A port of this machine that the system gives to no other process, even while its node restarts.

    The port is bound, but this process does not listen. A node can listen there, because nodes reuse addresses.
    """

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> HeldPort:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the port back."""
        self._socket.close()


class Worker(Node):
    """A worker. The gateway reaches it through a proxy if it has one."""

    def __init__(
        self, directory: Path, name: str, settings: Mapping[str, str], gateway: str, proxy: Proxy | None
    ) -> None:
        super().__init__(directory, name, settings)
        self._gateway = gateway
        self._proxy = proxy
        self.id = ""
        self.listen = "127.0.0.1:0"
        """Where the worker listens. By default, the system chooses a port at each start."""

    @property
    def proxy(self) -> Proxy:
        """The network between the gateway and this worker."""
        assert self._proxy is not None
        return self._proxy

    def launch(self) -> None:
        """Starts the process without waiting for anything."""
        arguments = ["worker", f"--listen={self.listen}", f"--gateway={self._gateway}"]
        if self._proxy is not None:
            arguments.append(f"--advertise={self._proxy.address}")
        self.begin(arguments)

    def await_ready(self) -> None:
        """Waits until the worker has joined."""
        line = self.running().await_ready()
        self.id = line.split()[2]
        if self._proxy is not None:
            self._proxy.target = int(line.rsplit(":", 1)[1])

    def end(self) -> None:
        """Kills the process if it still runs, and closes the proxy. The worker cannot be restarted after that."""
        super().end()
        if self._proxy is not None:
            self._proxy.close()

    def files(self) -> list[Path]:
        """Returns the worker's files with rows, whether the rows are visible or not."""
        return sorted(self.data_dir.glob("tables/**/*.parquet"))


class Gateway(Node):
    """A gateway. It restarts at the address of its first start, because workers look for it there."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, "gateway", settings)
        self._allowed_root = directory
        self._port = HeldPort()
        self.address = self._port.address
        self._scheme = "grpc"

    @property
    def uri(self) -> str:
        """The address that clients connect to."""
        return f"{self._scheme}://{self.address}"

    def launch(self) -> None:
        """Starts the process without waiting for anything."""
        self.begin(["gateway", f"--listen={self.address}", f"--allow-root={self._allowed_root}"])

    def await_ready(self) -> None:
        """Waits until clients can connect."""
        uri = self.running().await_ready().rsplit(" ", 1)[1]
        self._scheme, self.address = uri.split("://")

    def end(self) -> None:
        """Kills the process if it still runs, and gives its port back."""
        super().end()
        self._port.close()


IMPATIENT = {
    "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "50ms",
    "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "2s",
    "VOLARY_GATEWAY__GATHER__CONNECT_TIMEOUT": "1s",
    "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "1s",
}
"""The settings of a gateway that soon gives up on a worker that does not answer. Only tests of this behaviour use them,
because a worker on a slow machine may be silent for that long.
"""


class Processes:
    """A gateway and workers below `directory`. All started processes have ended when the context is left.

    If a worker is gone, the gateway gives up after half a second. It waits much longer for a worker that is silent.
    """

    SETTINGS: ClassVar[dict[str, str]] = {
        # Some tests wait for what workers report. Reports cost processor time while a cluster does nothing else.
        "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "200ms",
        "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "30s",
        "VOLARY_GATEWAY__GATHER__CONNECT_TIMEOUT": "10s",
        "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "10s",
        "VOLARY_GATEWAY__GATHER__RETRY_FOR": "500ms",
        "VOLARY_GATEWAY__LOAD__IDLE_TIMEOUT": "10m",
        "VOLARY_GATEWAY__MEMORY__LIMIT": "256MiB",
        "VOLARY_GATEWAY__QUERY__TARGET_PARTITIONS": "2",
        "VOLARY_WORKER__MEMORY__LIMIT": "256MiB",
    }

    def __init__(self, directory: Path, settings: Mapping[str, str] | None = None) -> None:
        self.directory = directory
        self.settings = {**self.SETTINGS, **(settings or {})}
        self.gateway = Gateway(directory, self.settings)
        self.workers: list[Worker] = []
        self._others: list[Process] = []
        self._connections = ExitStack()
        self._shared: tuple[Process | None, volary.Connection] | None = None

    def __enter__(self) -> Processes:
        try:
            self.gateway.start()
        except BaseException:
            self.gateway.end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._others:
            if process.is_alive():
                process.kill()
        for worker in self.workers:
            worker.end()
        self.gateway.end()
        self._connections.close()

    def new_worker(self, *, proxied: bool = False, data_dir: Path | None = None) -> Worker:
        """Creates another worker without starting it."""
        proxy = Proxy() if proxied else None
        name = f"worker{len(self.workers) + 1}"
        worker = Worker(self.directory, name, self.settings, self.gateway.address, proxy)
        worker.data_dir = data_dir or worker.data_dir
        self.workers.append(worker)
        return worker

    def add_worker(self, *, proxied: bool = False, data_dir: Path | None = None) -> Worker:
        """Creates and starts another worker, and waits until it has joined."""
        worker = self.new_worker(proxied=proxied, data_dir=data_dir)
        worker.start()
        return worker

    def run(self, name: str, *arguments: str) -> Process:
        """Starts another `volary` process beside the cluster."""
        process = Process(self.directory, name, list(arguments), self.settings)
        self._others.append(process)
        return process

    def connect(self) -> volary.Connection:
        """Returns a new connection of the Volary client."""
        return volary.connect(self.gateway.uri)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement and returns the rows.

        Statements share a connection until one of them fails or the gateway starts again, because a connection takes
        more processor time than most statements.
        """
        shared = self._shared
        if shared is None or shared[0] is not self.gateway.process:
            shared = self.gateway.process, self._connections.enter_context(self.connect())
            self._shared = shared
        try:
            return shared[1].sql(statement).rows()
        except volary.Error:
            self._shared = None
            raise

    def nodes(self, column: str) -> dict[str, Any]:
        """Returns a column of system.nodes by worker."""
        return dict(self.sql(f"SELECT id, {column} FROM system.nodes WHERE role = 'worker'"))
