"""Asks questions through a driver of Python, with one client or with many at the same time.

    python askers.py DRIVER

The program first answers with the versions of the driver's package. Then each line of its input is a request as JSON.
`askers` of other languages (benches/jdbc, tests/go/asker) read and write the same:

- `address`: `host:port` of the server
- `clients`: the number of clients, and `requests`: how many requests each of them sends, one after another
- `sql`: the query. `?` stands for the key, if it has one
- `form`: `literal` if the key is written into the text, or `parameter`
- `first`: the number of the first request. No other line has a request of the same number, so keys are not repeated
- `keys`: the largest key. The smallest is 1
- `rows`: the number of rows that the answer has
- `check`: whether the first value of the answer is the key. A stub gives the same answer to every request

The answer has the time of each request, and the time from the first request to the last answer.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Protocol

from clients import Adbc, Client, Volary

_PATIENCE_SECONDS = 60
# Multiplying by it spreads consecutive numbers over all keys, and no number of keys used here is a multiple of it.
_STEP = 7919

Times = list[tuple[float, float]]
"""When each request of a client began and ended."""


@dataclass(frozen=True)
class Request:
    """A line of the input."""

    address: str
    clients: int
    requests: int
    sql: str
    form: str
    first: int
    keys: int
    rows: int
    check: bool

    def questions(self, client: int) -> list[tuple[int, str, list[int]]]:
        """Returns the key, the text and the parameters of each request of a client, counted from 0."""
        begin = self.first + client * self.requests
        keys = [1 + number * _STEP % self.keys for number in range(begin, begin + self.requests)]
        if "?" not in self.sql:
            return [(key, self.sql, []) for key in keys]
        if self.form == "literal":
            return [(key, self.sql.replace("?", str(key)), []) for key in keys]
        return [(key, self.sql, [key]) for key in keys]

    def check_answer(self, key: int, rows: int, value: Any) -> None:
        """Raises `RuntimeError` if this is not the answer."""
        if rows != self.rows or (self.check and value != key):
            raise RuntimeError(f"key {key} of {self.sql!r}: {rows} rows, the first with {value!r}")


class Asks(Protocol):
    """A connection of a driver."""

    def ask(self, query: str, parameters: list[int]) -> tuple[int, Any]:
        """Returns the number of rows and the first value of the first row."""


class ArrowClient:
    """A connection whose answers are Arrow tables."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def ask(self, query: str, parameters: list[int]) -> tuple[int, Any]:
        """Returns the number of rows and the first value of the first row."""
        rows = self._client.ask(query, parameters)
        return rows.num_rows, rows.column(0)[0].as_py()


class Psycopg:
    """A connection of psycopg, PostgreSQL's driver. It prepares a query that it has seen five times."""

    def __init__(self, address: str) -> None:
        host, _, port = address.partition(":")
        self._connection = importlib.import_module("psycopg").connect(
            host=host, port=int(port), user="postgres", dbname="postgres", autocommit=True
        )

    def ask(self, query: str, parameters: list[int]) -> tuple[int, Any]:
        """Returns the number of rows and the first value of the first row."""
        with self._connection.cursor() as cursor:
            rows = cursor.execute(query.replace("?", "%s"), parameters or None).fetchall()
        return len(rows), rows[0][0]


class Threads:
    """Clients that are threads."""

    def __init__(self, connect: Callable[[str], Asks], *, share: bool) -> None:
        self._connect = connect
        self._share = share
        self._connected: dict[str, list[Asks]] = {}

    def burst(self, request: Request) -> list[Times]:
        """Lets all clients ask at the same time."""
        connected = self._connected.setdefault(request.address, [])
        while len(connected) < (1 if self._share else request.clients):
            connected.append(self._connect(request.address))
        barrier = threading.Barrier(request.clients, timeout=_PATIENCE_SECONDS)

        def run(client: int) -> Times:
            asks, questions = connected[0 if self._share else client], request.questions(client)
            times = []
            barrier.wait()
            for key, query, parameters in questions:
                begin = time.perf_counter()
                rows, value = asks.ask(query, parameters)
                times.append((begin, time.perf_counter()))
                request.check_answer(key, rows, value)
            return times

        with ThreadPoolExecutor(request.clients) as threads:
            return list(threads.map(run, range(request.clients)))


class Tasks:
    """Clients that are tasks of one event loop. They share a connection of `volary.aio`."""

    def __init__(self) -> None:
        self._connect = importlib.import_module("volary.aio").connect
        self._runner = asyncio.Runner()
        self._connected: dict[str, Any] = {}

    def burst(self, request: Request) -> list[Times]:
        """Lets all clients ask at the same time."""
        return self._runner.run(self._burst(request))

    async def _burst(self, request: Request) -> list[Times]:
        if request.address not in self._connected:
            self._connected[request.address] = await self._connect(f"grpc://{request.address}")
        connection = self._connected[request.address]

        async def run(client: int) -> Times:
            times = []
            for key, query, parameters in request.questions(client):
                begin = time.perf_counter()
                rows = await (await connection.sql(query, parameters)).to_arrow()
                value = rows.column(0)[0].as_py()
                times.append((begin, time.perf_counter()))
                request.check_answer(key, rows.num_rows, value)
            return times

        return await asyncio.gather(*map(run, range(request.clients)))


@dataclass(frozen=True)
class Driver:
    """A driver, with its package and its clients."""

    package: str
    clients: Callable[[], Threads | Tasks]


DRIVERS = {
    "volary": Driver("volary", lambda: Threads(lambda it: ArrowClient(Volary(f"grpc://{it}")), share=True)),
    "volary asyncio": Driver("volary", Tasks),
    "ADBC": Driver("adbc-driver-flightsql", lambda: Threads(lambda it: ArrowClient(Adbc(f"grpc://{it}")), share=False)),
    "psycopg": Driver("psycopg", lambda: Threads(Psycopg, share=False)),
}


def main() -> None:
    """Answers requests until the input ends."""
    (name,) = sys.argv[1:]
    driver = DRIVERS[name]
    clients = driver.clients()
    print(json.dumps({"versions": {driver.package: version(driver.package)}}), flush=True)
    for line in sys.stdin:
        times = [pair for of_client in clients.burst(Request(**json.loads(line))) for pair in of_client]
        answer = {
            "seconds": [end - begin for begin, end in times],
            "total_seconds": max(end for _, end in times) - min(begin for begin, _ in times),
        }
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
