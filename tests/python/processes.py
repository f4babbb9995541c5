"""A cluster of separate processes, each of which a test can kill, stop and start again."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

from proxy import Proxy

import volary

PATIENCE_SECONDS = 20.0
"""How long a test waits for what must happen, on a machine that is busy."""
_PAUSE_SECONDS = 0.01
_READY = "listening on grpc"
_REPOSITORY = Path(__file__).resolve().parents[2]

T = TypeVar("T")


def until(condition: Callable[[], T], what: str, seconds: float = PATIENCE_SECONDS) -> T:
    """Asks again and again until `condition` holds, and returns what it says. Fails after `seconds`."""
    deadline = time.monotonic() + seconds
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(_PAUSE_SECONDS)
    return answer


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Fails if what is done takes longer."""
    started = time.monotonic()
    yield
    took = time.monotonic() - started
    assert took < seconds, f"took {took:.1f} s, not less than {seconds} s"


def binary(name: str) -> Path:
    """The program `name`: VOLARY_BIN says where `volary` is, the others lie beside it."""
    if "VOLARY_BIN" in os.environ:
        found = Path(os.environ["VOLARY_BIN"]).with_name(name)
    else:
        found = Path(os.environ.get("CARGO_TARGET_DIR", _REPOSITORY / "target")) / "release" / name
    if not found.is_file():
        raise FileNotFoundError(f"{found} does not exist: build it with `cargo build --release`, or set VOLARY_BIN")
    return found


def status_bytes(pid: int, name: str) -> int:
    """A size from the system's status of a process: VmRSS is what it has in memory, VmHWM the most that it has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024


class Ended(NamedTuple):
    """What a program left."""

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
    """Runs a program to its end. Standard input is no terminal."""
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
    """Settings of whoever runs the tests are not the tests'."""
    return {**{key: value for key, value in os.environ.items() if not key.startswith("VOLARY_")}, **settings}


class Process:
    """`volary` with one subcommand. Its output is in `<directory>/<name>.out`, its log in `<directory>/<name>.log`."""

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
        """The line that says where it listens."""

        def ready() -> str | None:
            assert self._process.poll() is None, f"{self._command} has ended\n{self.tail()}"
            lines = self.output().splitlines(keepends=True)
            return next((line.strip() for line in lines if _READY in line and line.endswith("\n")), None)

        return until(ready, f"{self._command} is ready") or ""

    def output(self) -> str:
        """What it has printed."""
        return self._output.read_text()

    def log(self) -> str:
        """What it has logged."""
        return self._log.read_text()

    def tail(self) -> str:
        """The end of its log."""
        return "\n".join(self.log().splitlines()[-30:])

    def signal(self, number: signal.Signals) -> None:
        """Sends a signal."""
        self._process.send_signal(number)

    def limit_address_space(self, limit_bytes: int) -> None:
        """What it maps from now on fails if it has more than that."""
        resource.prlimit(self._process.pid, resource.RLIMIT_AS, (limit_bytes, limit_bytes))

    def limit_growth(self, limit_bytes: int) -> None:
        """The same, beside what it has mapped by now: code, stacks that are hardly used, what the allocator keeps."""
        self.limit_address_space(status_bytes(self._process.pid, "VmSize") + limit_bytes)

    def memory_bytes(self) -> int:
        """What it has in memory."""
        return status_bytes(self._process.pid, "VmRSS")

    def peak_memory_bytes(self) -> int:
        """The most that it has ever had in memory."""
        return status_bytes(self._process.pid, "VmHWM")

    def kill(self) -> None:
        """SIGKILL: nothing of what it holds is written any more."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        """SIGTERM, after which it must end well."""
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
        """Whether it runs."""
        return self._process.poll() is None

    def failure(self) -> tuple[int, str]:
        """The exit code and the last line of its log, when it has failed by itself."""
        code = self._process.wait(timeout=PATIENCE_SECONDS)
        return code, self._log.read_text().splitlines()[-1]


class Node:
    """A gateway or a worker: a data directory, and the process that uses it now."""

    def __init__(self, directory: Path, name: str, settings: Mapping[str, str]) -> None:
        self.name = name
        self.data_dir = directory / name
        self._directory = directory
        self._settings = settings
        self.process: Process | None = None

    def begin(self, arguments: list[str]) -> Process:
        """Starts the process, and waits for nothing."""
        arguments = [*arguments, f"--data-dir={self.data_dir}"]
        self.process = Process(self._directory, self.name, arguments, self._settings)
        return self.process

    def running(self) -> Process:
        """The process, which must have been started."""
        assert self.process is not None
        return self.process

    def kill(self) -> None:
        """SIGKILL."""
        self.running().kill()

    def end(self) -> None:
        """Leaves nothing behind, whatever the test did."""
        if self.process is not None and self.process.is_alive():
            self.process.kill()


class Worker(Node):
    """A worker, reached through a proxy if it has one."""

    def __init__(
        self, directory: Path, name: str, settings: Mapping[str, str], gateway: str, proxy: Proxy | None
    ) -> None:
        super().__init__(directory, name, settings)
        self._gateway = gateway
        self._proxy = proxy
        self.id = ""

    @property
    def proxy(self) -> Proxy:
        """The network between the gateway and this worker."""
        assert self._proxy is not None
        return self._proxy

    def launch(self) -> None:
        """Starts the process, and waits for nothing."""
        arguments = ["worker", "--listen=127.0.0.1:0", f"--gateway={self._gateway}"]
        if self._proxy is not None:
            arguments.append(f"--advertise={self._proxy.address}")
        self.begin(arguments)

    def await_ready(self) -> None:
        """Waits until it has joined."""
        line = self.running().await_ready()
        self.id = line.split()[2]
        if self._proxy is not None:
            self._proxy.target = int(line.rsplit(":", 1)[1])

    def start(self) -> None:
        """Starts it, the first time or again, on a port of the system's choice."""
        self.launch()
        self.await_ready()

    def end(self) -> None:
        """Leaves nothing behind, whatever the test did. It may not start again."""
        super().end()
        if self._proxy is not None:
            self._proxy.close()

    def files(self) -> list[Path]:
        """Its files with rows, visible or not."""
        return sorted(self.data_dir.glob("tables/*/*/*.parquet"))


class Gateway(Node):
    """A gateway. It starts again at the address of its first start, at which workers look for it."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        super().__init__(directory, "gateway", settings)
        self._allowed_root = directory
        self.address = "127.0.0.1:0"
        self._scheme = "grpc"

    @property
    def uri(self) -> str:
        """Where clients connect."""
        return f"{self._scheme}://{self.address}"

    def start(self) -> None:
        """Starts it, the first time or again."""
        process = self.begin(["gateway", f"--listen={self.address}", f"--allow-root={self._allowed_root}"])
        uri = process.await_ready().rsplit(" ", 1)[1]
        self._scheme, self.address = uri.split("://")


class Processes:
    """A gateway and workers below `directory`. Everything that was started has ended when the context is left."""

    SETTINGS: ClassVar[dict[str, str]] = {
        "VOLARY_GATEWAY__CLUSTER__HEARTBEAT_INTERVAL": "50ms",
        "VOLARY_GATEWAY__CLUSTER__LOST_AFTER": "2s",
        "VOLARY_GATEWAY__GATHER__CONNECT_TIMEOUT": "1s",
        "VOLARY_GATEWAY__GATHER__IDLE_TIMEOUT": "1s",
        "VOLARY_GATEWAY__GATHER__RETRY_FOR": "500ms",
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

    def new_worker(self, *, proxied: bool = False, data_dir: Path | None = None) -> Worker:
        """One more worker, which is not started."""
        proxy = Proxy() if proxied else None
        name = f"worker{len(self.workers) + 1}"
        worker = Worker(self.directory, name, self.settings, self.gateway.address, proxy)
        worker.data_dir = data_dir or worker.data_dir
        self.workers.append(worker)
        return worker

    def add_worker(self, *, proxied: bool = False, data_dir: Path | None = None) -> Worker:
        """One more worker, which has joined."""
        worker = self.new_worker(proxied=proxied, data_dir=data_dir)
        worker.start()
        return worker

    def run(self, name: str, *arguments: str) -> Process:
        """Starts another `volary`, beside the cluster."""
        process = Process(self.directory, name, list(arguments), self.settings)
        self._others.append(process)
        return process

    def connect(self) -> volary.Connection:
        """A new connection of the Volary client."""
        return volary.connect(self.gateway.uri)

    def sql(self, statement: str) -> list[tuple[Any, ...]]:
        """Runs a statement on a connection of its own: the rows."""
        with self.connect() as connection:
            return connection.sql(statement).rows()

    def nodes(self, column: str) -> dict[str, Any]:
        """A column of system.nodes by worker."""
        return dict(self.sql(f"SELECT id, {column} FROM system.nodes WHERE role = 'worker'"))
