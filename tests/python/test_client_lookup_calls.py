"""Tests what happens to the callers of a lookup if its call is disturbed: interrupted, too late, cancelled or closed.

A stub takes the keys. It reads and answers when a test says so, and needs no server.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from interrupts import Handler, handled_by, own_handler, pressed_when
from lookup_gateway import LookupGateway
from processes import PATIENCE_SECONDS, until
from proxy import Proxy

import volary
import volary.aio
from volary._exchange import Exchange

# Such a batch does not fit into the buffers of a network connection, so it is sent only if the gateway reads.
LARGE = pa.array(np.arange(4_000_000))


@pytest.fixture
def stub() -> Iterator[LookupGateway]:
    with LookupGateway() as stub:
        yield stub


@pytest.fixture
def connection(stub: LookupGateway) -> Iterator[volary.Connection]:
    with stub.connect() as connection:
        yield connection


@pytest.fixture
def lookup(connection: volary.Connection) -> Iterator[volary.Lookup]:
    with connection.lookups("birds", schema="public", timeout=PATIENCE_SECONDS) as lookup:
        yield lookup


def keys_of(table: pa.Table) -> list[int]:
    return table.column("k").to_pylist()


def await_thread_in(function: str, file: str) -> None:
    """Waits until a thread is in a function of the client."""

    def is_there() -> bool:
        for frame in sys._current_frames().values():
            while frame is not None:
                if frame.f_code.co_name == function and frame.f_code.co_filename.endswith(file):
                    return True
                frame = frame.f_back
        return False

    until(is_there, f"a thread is in {function} of {file}")


def await_blocked_write() -> None:
    await_thread_in("write_rows", "_exchange.py")


# Answers go to those who have asked


@pytest.mark.parametrize("is_sent", [False, True])
def test_an_interrupted_write_takes_no_answer_of_another_batch(lookup, monkeypatch, is_sent):
    assert keys_of(lookup.get([1])) == [1]

    def interrupted(exchange: Exchange, batch: pa.RecordBatch) -> None:
        monkeypatch.undo()
        if is_sent:
            exchange.write_rows(batch)
        raise KeyboardInterrupt

    monkeypatch.setattr(Exchange, "write_rows", interrupted)
    with pytest.raises(KeyboardInterrupt):
        lookup.get([2])
    for key in (3, 4, 5):
        assert keys_of(lookup.get([key])) == [key]


def test_a_batch_that_is_refused_here_takes_no_answer_of_another_batch(lookup, monkeypatch):
    pending = lookup.submit([1])

    def refused(_exchange: Exchange, _batch: pa.RecordBatch) -> None:
        monkeypatch.undo()
        raise volary.InvalidArgumentError("pyarrow does not send this")

    monkeypatch.setattr(Exchange, "write_rows", refused)
    with pytest.raises(volary.InvalidArgumentError, match="does not send this"):
        lookup.get([2])
    assert keys_of(lookup.get([3])) == [3]
    assert keys_of(pending.get()) == [1]
    assert keys_of(lookup.get([4, 5])) == [4, 5]


def test_a_batch_that_pyarrow_cannot_send_is_refused(lookup):
    assert keys_of(lookup.get([1])) == [1]
    # The system gives memory for zeros only when they are read.
    count = 1 << 28
    zeros = pa.Array.from_buffers(pa.int64(), count, [None, pa.py_buffer(np.zeros(count, np.int64))])
    with pytest.raises(volary.InvalidArgumentError, match=f"{count} keys take .* in several batches"):
        lookup.get(zeros)
    for key in (2, 3):
        assert keys_of(lookup.get([key])) == [key]


def test_an_answer_to_another_batch_ends_the_call(stub, lookup):
    stub.sequences = {2: 3}
    assert keys_of(lookup.get([1])) == [1]
    with pytest.raises(volary.InternalError, match="answered batch 3, but it is the turn of batch 2"):
        lookup.get([2])
    assert keys_of(lookup.get([3])) == [3]


def test_a_thread_that_cannot_be_started_is_an_error_of_one_caller(lookup, monkeypatch):
    start = threading.Thread.start

    def fail(thread: threading.Thread) -> None:
        if thread.name != "volary-lookup":
            return start(thread)
        monkeypatch.undo()
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    with pytest.raises(RuntimeError, match="new thread"):
        lookup.get([1])
    for key in (2, 3):
        assert keys_of(lookup.get([key])) == [key]


@pytest.mark.parametrize("handler", [signal.default_int_handler, own_handler])
def test_ctrl_c_ends_a_write_and_the_others_get_their_rows(stub, lookup, handler: Handler):
    stub.may_go_on.clear()
    pressed = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        earlier = threads.submit(lookup.get, [1])
        until(lambda: stub.asked == [[1]], "the gateway holds a batch")
        watching = threads.submit(lambda: (await_blocked_write(), pressed.set()))
        with handled_by(handler), pytest.raises(KeyboardInterrupt), pressed_when(pressed):
            lookup.get(LARGE)
        watching.result()
        later = threads.submit(lookup.get, [2, 3])
        stub.may_go_on.set()
        assert keys_of(earlier.result()) == [1]
        assert keys_of(later.result()) == [2, 3]


# Deadlines


def test_keys_that_the_gateway_does_not_read_have_a_deadline(stub, lookup):
    stub.may_go_on.clear()
    with ThreadPoolExecutor(4) as threads:
        lookup.submit([1])
        until(lambda: stub.asked == [[1]], "the gateway holds a batch")
        large = threads.submit(lookup.get, LARGE, timeout=1)
        await_blocked_write()
        small = threads.submit(lookup.one, 5, timeout=0.5)
        patient = threads.submit(lookup.get, [6])
        for asked in (small, large):
            with pytest.raises(volary.DeadlineExceededError, match="timeout of the lookup"):
                asked.result(PATIENCE_SECONDS)
        stub.may_go_on.set()
        assert keys_of(patient.result()) == [6]
        assert lookup.one(7) == {"k": 7}


def test_a_gateway_that_is_not_reached_has_a_deadline(stub):
    proxy = Proxy()
    proxy.target = int(stub.uri.rsplit(":", 1)[1])
    try:
        with (
            volary.connect(f"grpc://{proxy.address}") as connection,
            connection.lookups("birds", schema="public") as lookup,
        ):
            proxy.hold()
            with pytest.raises(volary.DeadlineExceededError, match="timeout of the lookup"):
                lookup.one(1, timeout=0.5)
            proxy.release()
            assert lookup.one(1, timeout=PATIENCE_SECONDS) == {"k": 1}
    finally:
        proxy.close()


def test_a_lookup_is_closed_while_it_connects(stub):
    proxy = Proxy()
    proxy.target = int(stub.uri.rsplit(":", 1)[1])
    try:
        with volary.connect(f"grpc://{proxy.address}") as connection, ThreadPoolExecutor(1) as threads:
            lookup = connection.lookups("birds", schema="public")
            proxy.hold()
            waiting = threads.submit(lookup.one, 1, timeout=PATIENCE_SECONDS)
            await_thread_in("exchange", "_line.py")
            lookup.close()
            with pytest.raises(volary.CancelledError, match="closed"):
                waiting.result(PATIENCE_SECONDS)
            proxy.release()
    finally:
        proxy.close()


def test_a_cancelled_task_ends_although_the_gateway_reads_nothing(stub):
    async def work() -> None:
        async with (
            await volary.aio.connect(stub.uri) as connection,
            connection.lookups("birds", schema="public", timeout=PATIENCE_SECONDS) as lookup,
        ):
            stub.may_go_on.clear()
            first = asyncio.create_task(lookup.get([1]))
            await asyncio.to_thread(until, lambda: stub.asked == [[1]], "the gateway holds a batch")
            writes = asyncio.create_task(lookup.get(LARGE))
            await asyncio.to_thread(await_blocked_write)
            waits = asyncio.create_task(lookup.get([2]))
            await asyncio.to_thread(await_thread_in, "_take_turn", "_call.py")
            for task in (waits, writes):
                task.cancel()
                done, _ = await asyncio.wait([task], timeout=PATIENCE_SECONDS)
                assert done, "the cancelled task has not ended"
                assert task.cancelled()
            stub.may_go_on.set()
            assert keys_of(await first) == [1]
            assert keys_of(await lookup.get([3])) == [3]

    asyncio.run(work())


# The end of the connection and of the lookup


@pytest.mark.parametrize("keys", [[1], LARGE], ids=["waits", "writes"])
def test_a_closed_connection_ends_a_lookup_that_runs(stub, connection, keys):
    stub.may_go_on.clear()
    with ThreadPoolExecutor(1) as threads:
        asked = threads.submit(connection.lookup, "birds", keys)
        until(lambda: stub.asked, "the keys have arrived")
        connection.close()
        with pytest.raises(volary.CancelledError):
            asked.result(PATIENCE_SECONDS)


def test_the_rows_keep_their_lookup(connection):
    pending = connection.lookups("birds", schema="public").submit([1])
    assert keys_of(pending.get()) == [1]


# Keys that are joined


def lead(lookup: volary.Lookup, threads: ThreadPoolExecutor, key: int, timeout: float) -> Any:
    """Asks for a key in a thread that looks it up for those who ask within the window, too."""
    leader = threads.submit(lookup.one, key, timeout=timeout)
    await_thread_in("one", "_join.py")
    return leader


def test_a_thread_that_has_little_time_does_not_end_the_others(stub, connection):
    stub.may_go_on.clear()
    with (
        connection.lookups("birds", schema="public", join_window=0.5) as lookup,
        ThreadPoolExecutor(3) as threads,
    ):
        leader = lead(lookup, threads, 1, timeout=1)
        followers = [threads.submit(lookup.one, key, timeout=PATIENCE_SECONDS) for key in (2, 3)]
        with pytest.raises(volary.DeadlineExceededError, match="timeout of the lookup"):
            leader.result(PATIENCE_SECONDS)
        stub.may_go_on.set()
        assert [follower.result() for follower in followers] == [{"k": 2}, {"k": 3}]
        # Another thread waits for the same batch.
        assert sorted(key for batch in stub.asked for key in batch) == [1, 2, 3]


def test_a_thread_without_time_for_the_window_does_not_end_the_others(connection):
    with (
        connection.lookups("birds", schema="public", join_window=1) as lookup,
        ThreadPoolExecutor(2) as threads,
    ):
        leader = lead(lookup, threads, 1, timeout=0.5)
        follower = threads.submit(lookup.one, 2, timeout=PATIENCE_SECONDS)
        with pytest.raises(volary.DeadlineExceededError, match="timeout of the lookup"):
            leader.result(PATIENCE_SECONDS)
        assert follower.result() == {"k": 2}


def test_ctrl_c_ends_only_the_thread_that_is_interrupted(stub, connection):
    stub.may_go_on.clear()
    pressed = threading.Event()
    with (
        connection.lookups("birds", schema="public", join_window=0.5, timeout=PATIENCE_SECONDS) as lookup,
        ThreadPoolExecutor(2) as threads,
    ):

        def follow() -> Any:
            await_thread_in("one", "_join.py")
            return lookup.one(2)

        def press() -> None:
            until(lambda: stub.asked, "the keys have arrived")
            pressed.set()

        follower = threads.submit(follow)
        threads.submit(press)
        with (
            handled_by(signal.default_int_handler),
            pytest.raises(KeyboardInterrupt),
            pressed_when(pressed),
        ):
            lookup.one(1)
        stub.may_go_on.set()
        assert follower.result() == {"k": 2}


def run_in_loops(stub: LookupGateway, *works: Callable[[volary.aio.AsyncLookup], Any]) -> list[Any]:
    """Runs each function in an event loop of its own, with the same lookup."""

    async def open_lookup() -> tuple[volary.aio.AsyncConnection, volary.aio.AsyncLookup]:
        connection = await volary.aio.connect(stub.uri)
        lookup = connection.lookups("birds", schema="public", join_window=0.5)
        return connection, await lookup.__aenter__()

    connection, lookup = asyncio.run(open_lookup())
    try:
        return [asyncio.run(work(lookup)) for work in works]
    finally:
        connection.connection.close()


def test_a_second_event_loop_does_not_wait_for_the_first_one(stub):
    async def leave(lookup: volary.aio.AsyncLookup) -> None:
        task = asyncio.create_task(lookup.one(1))
        await asyncio.sleep(0)
        task.cancel()

    async def ask(lookup: volary.aio.AsyncLookup) -> Any:
        return await asyncio.wait_for(asyncio.gather(lookup.one(2), lookup.one(3)), PATIENCE_SECONDS)

    assert run_in_loops(stub, leave, ask) == [None, [{"k": 2}, {"k": 3}]]
