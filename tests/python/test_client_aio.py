"""Tests the cancellation of tasks that are connecting with volary.aio. No server is needed."""

import asyncio
import threading

import pytest
from processes import PATIENCE_SECONDS, until
from stub_gateway import StubGateway

import volary
import volary.aio


@pytest.fixture
def stub():
    with StubGateway({}) as stub:
        yield stub
        # Ends all calls that still wait for the login.
        stub.may_log_in.set()


def test_a_task_that_is_cancelled_does_not_wait_for_its_log_in(stub):
    stub.may_log_in.clear()

    async def work():
        connecting = asyncio.create_task(volary.aio.connect(stub.uri, username="ada", password="secret"))
        await asyncio.to_thread(until, lambda: "Handshake" in stub.calls, "the gateway is asked")
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting
        assert not stub.stream_ended.is_set()

    asyncio.run(work())
    stub.may_log_in.set()
    until(lambda: "CloseSession" in stub.calls, "the session that nobody wants is closed")


def test_a_connection_that_is_there_when_its_task_is_cancelled_is_closed(stub, monkeypatch):
    is_there = threading.Event()

    def connect(*arguments, **named):
        connection = volary.connect(*arguments, **named)
        is_there.set()
        return connection

    monkeypatch.setattr("volary.aio._connect", connect)

    async def work():
        connecting = asyncio.create_task(volary.aio.connect(stub.uri))
        await asyncio.sleep(0)
        # The event loop is blocked here, so the task does not notice the connection before it is cancelled.
        assert is_there.wait(timeout=PATIENCE_SECONDS)
        connecting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await connecting

    asyncio.run(work())
    until(lambda: "CloseSession" in stub.calls, "the session that nobody wants is closed")
