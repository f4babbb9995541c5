"""Tests the streams of volary.aio against a stub."""

import asyncio
import gc

import pytest
from processes import PATIENCE_SECONDS, until
from stream_gateway import BAD, StreamGateway, large, rows, values_of

import volary
import volary.aio


@pytest.fixture
def gateway():
    with StreamGateway() as gateway:
        yield gateway


def test_a_write_returns_when_the_batch_is_accepted(gateway):
    async def work() -> None:
        gateway.may_go_on.clear()
        async with await volary.aio.connect(gateway.uri) as connection, connection.stream("birds") as stream:
            futures = [await stream.write(rows(number)) for number in range(3)]
            assert not any(future.done() for future in futures)
            gateway.may_go_on.set()
            assert [(await future).sequence for future in futures] == [1, 2, 3]
            last = await stream.write(rows(3))
            await stream.flush()
            assert last.result() == volary.Acknowledgement(4, 1, False)
            assert stream.stream.last_sequence == 4

    asyncio.run(work())
    assert values_of(gateway) == [0, 1, 2, 3]


def test_acknowledgements_can_be_gathered_and_waited_for(gateway):
    async def work() -> None:
        async with await volary.aio.connect(gateway.uri) as connection, connection.stream("birds") as stream:
            futures = [await stream.write(rows(number)) for number in range(4)]
            gathered = await asyncio.gather(*futures[:2])
            assert [acknowledgement.rows for acknowledgement in gathered] == [1, 1]
            done, waiting = await asyncio.wait(futures[2:], timeout=PATIENCE_SECONDS)
            assert (done, waiting) == (set(futures[2:]), set())

    asyncio.run(work())


def test_an_error_that_was_awaited_is_not_raised_again(gateway, caplog):
    async def work() -> None:
        gateway.refusals = {2: BAD}
        async with await volary.aio.connect(gateway.uri) as connection, connection.stream("birds") as stream:
            futures = [await stream.write(rows(number)) for number in range(2)]
            with pytest.raises(volary.InvalidArgumentError, match="column name is NULL"):
                await futures[1]

    asyncio.run(work())
    gc.collect()
    # asyncio logs errors that nobody got.
    assert not caplog.records


def test_leaving_the_block_raises_an_error_that_nobody_awaited(gateway, caplog):
    async def work() -> None:
        gateway.refusals = {2: BAD}
        async with await volary.aio.connect(gateway.uri) as connection, connection.stream("birds") as stream:
            for number in range(2):
                await stream.write(rows(number))

    with pytest.raises(volary.InvalidArgumentError, match="batch 2 was refused"):
        asyncio.run(work())
    gc.collect()
    assert not caplog.records


def test_a_task_that_is_cancelled_while_it_waits_for_room_ends(gateway):
    async def work() -> None:
        gateway.may_go_on.clear()
        async with await volary.aio.connect(gateway.uri) as connection, connection.stream("birds") as stream:
            await stream.write(large(1))
            waiting = asyncio.create_task(stream.write(large(2)))
            window = stream.stream._window
            await asyncio.to_thread(until, lambda: window._queue, "the task waits")
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            gateway.may_go_on.set()

    asyncio.run(work())
    assert values_of(gateway) == [1]


def test_a_task_that_is_cancelled_in_the_block_cancels_the_stream(gateway):
    async def work() -> None:
        gateway.may_go_on.clear()
        accepted = asyncio.Event()
        futures = []

        async def write() -> None:
            async with connection.stream("birds") as stream:
                futures.append(await stream.write(rows(1)))
                accepted.set()
                await asyncio.Event().wait()

        async with await volary.aio.connect(gateway.uri) as connection:
            task = asyncio.create_task(write())
            await accepted.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            with pytest.raises(volary.CancelledError, match="batch 1 is not acknowledged"):
                await futures[0]

    asyncio.run(work())


def test_a_stream_is_used_in_a_block(gateway):
    async def work() -> None:
        async with await volary.aio.connect(gateway.uri) as connection:
            with pytest.raises(RuntimeError, match="use `async with`"):
                await connection.stream("birds").write(rows(1))

    asyncio.run(work())
