"""Tests Connection.stream against a stub: order, the window, lost connections, refused batches, threads and Ctrl-C."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from grpc import StatusCode
from interrupts import handled_by, own_handler
from processes import PATIENCE_SECONDS, until
from proxy import Proxy
from stream_gateway import BAD, WINDOW_BYTES, StreamGateway, large, rows, values_of
from stub_gateway import Failure

import volary
from volary import Acknowledgement

LOST = Failure(StatusCode.UNAVAILABLE, "UNAVAILABLE: the gateway stops")
RESET = Failure(StatusCode.CANCELLED, "")
KILLED = Failure(StatusCode.CANCELLED, "CANCELLED: the stream was killed by ada")
BUSY = {"code": "RESOURCE_EXHAUSTED", "sqlstate": "53000", "message": "the queue is full", "retry_after_ms": 1}


@pytest.fixture
def gateway():
    with StreamGateway() as gateway:
        yield gateway


@pytest.fixture
def connection(gateway):
    with gateway.connect() as connection:
        yield connection


@pytest.fixture
def proxy(gateway):
    proxy = Proxy()
    proxy.target = int(gateway.uri.rsplit(":", 1)[1])
    yield proxy
    proxy.close()


@pytest.fixture
def far(proxy):
    """A connection through the proxy."""
    with volary.connect(f"grpc://{proxy.address}") as connection:
        yield connection


def stream_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith(("volary-stream", "volary-ack"))]


# The usual way


def test_batches_are_acknowledged_in_order(gateway, connection):
    done = []
    with connection.stream("birds") as stream:
        assert stream.last_sequence == 0
        futures = [stream.write(rows(number, number)) for number in range(100)]
        for future in futures:
            future.add_done_callback(done.append)
        stream.flush()
        assert all(future.done() for future in futures)
        assert [future.result() for future in futures] == [
            Acknowledgement(number, rows=2, is_duplicate=False) for number in range(1, 101)
        ]
        assert stream.last_sequence == 100
    assert done == futures
    assert values_of(gateway) == [number for number in range(100) for _ in range(2)]
    assert len(gateway.streams) == 1


def test_leaving_the_block_waits_for_all_acknowledgements(gateway, connection):
    with connection.stream("birds") as stream:
        future = stream.write(rows(1))
    assert future.done()
    with pytest.raises(RuntimeError, match="the stream is closed"):
        stream.write(rows(2))
    stream.close()
    until(lambda: not stream_threads(), "the threads have ended")


def test_a_stream_without_batches_is_nothing(gateway, connection):
    with connection.stream("birds") as stream:
        stream.flush()
    assert gateway.decided == {stream.producer: []}
    assert stream.last_sequence == 0


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (rows(1, 2), [1, 2]),
        (pa.table({"k": pa.chunked_array([[1], [2, 3]])}), [1, 2, 3]),
        (pa.table({"k": pa.chunked_array([], pa.int64())}), []),
        (rows(), []),
        (pd.DataFrame({"k": [1, 2]}), [1, 2]),
        (pl.DataFrame({"k": [1, 2]}), [1, 2]),
        ([{"k": 1}, {"k": None}], [1, None]),
        (({"k": "kea"},), ["kea"]),
    ],
    ids=["batch", "table", "no batch", "no rows", "pandas", "polars", "dictionaries", "texts"],
)
def test_rows_of_all_kinds(gateway, connection, data, expected):
    with connection.stream("birds") as stream:
        assert stream.write(data).result(timeout=PATIENCE_SECONDS) == Acknowledgement(1, len(expected), False)
    assert values_of(gateway) == expected


def test_what_is_no_batch_is_said_and_the_stream_goes_on(gateway, connection):
    deep = pa.int64()
    for _ in range(80):
        deep = pa.list_(deep)
    with connection.stream("birds") as stream:
        for data, kind, said in (
            (7, TypeError, "not int"),
            ("birds.parquet", TypeError, "not str"),
            ([7], TypeError, "row 1 must be a dictionary"),
            ([], volary.InvalidArgumentError, "the list has no rows"),
            ([{"k": 1}, {"a": 1, "k": 2}], volary.InvalidArgumentError, "row 2 has the columns a, k, and row 1 has k"),
            ([{"k": object()}], volary.InvalidArgumentError, "column k have no common Arrow type"),
            (pa.record_batch({"k": pa.nulls(1 << 31)}), volary.InvalidArgumentError, "larger than"),
            (pa.record_batch({"k": pa.nulls(1, deep)}), volary.InvalidArgumentError, "recursion depth"),
        ):
            with pytest.raises(kind, match=said):
                stream.write(data)
        assert stream.write(rows(1)).result().sequence == 1


def test_a_frame_may_be_changed_after_it_was_written(gateway, connection):
    frame = pd.DataFrame({"k": [1.0, 2.0]})
    gateway.may_go_on.clear()
    with connection.stream("birds") as stream:
        stream.write(rows(0))
        stream.write(frame)
        frame["k"].array[0] = 7.0
        gateway.may_go_on.set()
    assert values_of(gateway) == [0, 1.0, 2.0]


def test_batches_may_have_other_columns_than_those_before_them(gateway, connection):
    with connection.stream("birds") as stream:
        stream.write(rows(1))
        stream.write([{"k": 2}])
        stream.write([{"k": 3.5}])
        stream.write(rows(4))
    assert values_of(gateway) == [1, 2, 3.5, 4]
    # A call has one schema.
    assert len(gateway.streams) == 3


def test_a_large_batch_is_cut_into_messages_and_stays_one_batch(gateway, connection):
    text = "x" * (1 << 20)
    table = pa.table({"k": list(range(40)), "text": [text] * 40})
    with connection.stream("birds") as stream:
        stream.write(table)
        stream.write(rows(40))
    (batches,) = gateway.decided.values()
    assert [batch.num_rows for batch in batches] == [40, 1]
    assert gateway.messages > 2
    assert batches[0].equals(table)


def test_the_options_are_those_of_the_call(gateway, connection):
    with connection.stream("birds", schema="s", producer="kea", continue_on_error=True) as stream:
        stream.write(rows(1))
    with connection.stream("birds", producer="tūī") as stream:
        stream.write(rows(1))
    assert gateway.streams == [
        {"table": "birds", "schema": "s", "stream": "true", "producer": "kea", "continue": "true"},
        # The schema of the session is named, because a gateway that restarts forgets it.
        {"table": "birds", "schema": "public", "stream": "true", "producer": "tūī"},
    ]
    for named, said in (
        ({"producer": ""}, "producer must be"),
        ({"producer": "k" * 65}, "producer must be"),
        ({"producer": "a\nb"}, "producer must be"),
        ({"window": 0}, "window must be"),
    ):
        with pytest.raises(volary.InvalidArgumentError, match=said):
            connection.stream("birds", **named)


def test_a_stream_that_the_gateway_does_not_open_says_why(gateway, connection):
    gateway.fails_to_open = Failure(StatusCode.NOT_FOUND, "NOT_FOUND: table birds does not exist")
    with pytest.raises(volary.NotFoundError, match="birds"), connection.stream("birds"):
        pytest.fail("there is no stream")
    assert gateway.calls.count("stream") == 1
    until(lambda: not stream_threads(), "the threads have ended")


def test_a_gateway_that_cannot_be_reached_at_first_is_not_waited_for(far, proxy):
    proxy.target = None
    proxy.cut()
    with pytest.raises(volary.UnavailableError):
        far.stream("birds", schema="s", retry_timeout=PATIENCE_SECONDS)


# The window


@pytest.mark.parametrize("window", [None, WINDOW_BYTES])
def test_a_full_window_blocks_until_there_is_room(gateway, connection, background, window):
    gateway.may_go_on.clear()
    with connection.stream("birds", window=window) as stream:
        first = stream.write(large(1))
        waiting = background(stream.write, large(2))
        with pytest.raises(volary.DeadlineExceededError, match=r"the window of 1048576 bytes is full.*within 0.01 s"):
            stream.write(large(3), timeout=0.01)
        assert not first.done()
        assert not waiting.done()
        gateway.may_go_on.set()
        waiting.result(timeout=PATIENCE_SECONDS).result(timeout=PATIENCE_SECONDS)
    assert values_of(gateway) == [1, 2]


def test_a_batch_that_is_larger_than_the_window_has_it_alone(gateway, connection):
    with connection.stream("birds", window=1) as stream:
        for number in range(5):
            stream.write(rows(number))
    assert values_of(gateway) == list(range(5))


def test_small_batches_do_not_keep_out_a_large_one(gateway, connection, background):
    gateway.may_go_on.clear()
    with connection.stream("birds") as stream:
        stream.write(large(0))
        waiting = background(stream.write, large(1))
        until(lambda: stream._window._queue, "the large batch waits")
        with pytest.raises(volary.DeadlineExceededError):
            stream.write(rows(2), timeout=0.01)
        gateway.may_go_on.set()
        waiting.result(timeout=PATIENCE_SECONDS)


def test_flush_has_a_deadline_and_may_be_called_again(gateway, connection):
    gateway.may_go_on.clear()
    with connection.stream("birds") as stream:
        stream.write(rows(1))
        with pytest.raises(volary.DeadlineExceededError, match=r"1 batches are not acknowledged after 0.01 s"):
            stream.flush(timeout=0.01)
        gateway.may_go_on.set()
        stream.flush()


def test_a_close_that_takes_too_long_cancels_the_stream(gateway, connection):
    gateway.may_go_on.clear()
    stream = connection.stream("birds")
    future = stream.write(rows(1))
    with pytest.raises(volary.DeadlineExceededError, match=r"the stream was cancelled, because 1 batches"):
        stream.close(timeout=0.01)
    with pytest.raises(volary.CancelledError, match="batch 1 is not acknowledged"):
        future.result(timeout=PATIENCE_SECONDS)
    until(lambda: not stream_threads(), "the threads have ended")


# Lost connections


@pytest.mark.parametrize("lost", [None, LOST, RESET], ids=["cut", "ended by the gateway", "reset"])
def test_a_stream_goes_on_after_a_lost_connection(gateway, far, proxy, lost):
    if lost is None:
        gateway.when_applied = {3: proxy.cut, 7: proxy.cut}
    else:
        gateway.failures = {3: lost, 7: lost}
    with far.stream("birds") as stream:
        futures = [stream.write(rows(number)) for number in range(10)]
    assert [future.result().sequence for future in futures] == list(range(1, 11))
    assert values_of(gateway) == list(range(10))
    assert len(gateway.streams) == 3
    # A cut connection loses batches 3 and 7 after they are written, a failure before that. A batch before them is sent
    # again too if its acknowledgement was still on its way.
    duplicates = {future.result().sequence for future in futures if future.result().is_duplicate}
    assert duplicates & {3, 7} == ({3, 7} if lost is None else set())
    assert duplicates <= set(range(1, 8))


def test_a_stream_waits_for_a_gateway_that_restarts(gateway, far, proxy):
    port = proxy.target
    with far.stream("birds") as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        proxy.target = None
        proxy.cut()
        future = stream.write(rows(2))
        until(lambda: stream._sender._backoff._lost_at is not None, "the stream has lost its connection")
        assert not future.done()
        proxy.target = port
        assert future.result(timeout=PATIENCE_SECONDS).sequence == 2
    assert values_of(gateway) == [1, 2]


def test_a_stream_gives_up_after_its_time(gateway, far, proxy):
    stream = far.stream("birds", retry_timeout=0.2)
    stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
    proxy.target = None
    proxy.cut()
    futures = [stream.write(rows(2)), stream.write(rows(3))]
    wait(futures, timeout=PATIENCE_SECONDS)
    # Nobody has got the errors of the futures.
    with pytest.raises(volary.UnavailableError, match=r"not go on within 0.2 s; 2 batches are not acknowledged"):
        stream.close()
    with pytest.raises(volary.UnavailableError, match="batch 3 is not acknowledged, because its stream has ended"):
        futures[1].result()
    with pytest.raises(volary.UnavailableError):
        stream.write(rows(4))


def test_a_gateway_that_fails_again_and_again_is_given_up(gateway, connection):
    stream = connection.stream("birds", retry_timeout=0.2)
    gateway.fails_to_open = gateway.failures[1] = LOST
    future = stream.write(rows(1))
    with pytest.raises(volary.UnavailableError, match="The last error was UNAVAILABLE: the gateway stops"):
        future.result(timeout=PATIENCE_SECONDS)
    stream.close()


def test_a_stream_that_ends_while_nothing_is_written_begins_again_with_the_next_batch(gateway, far, proxy):
    with far.stream("birds") as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        proxy.cut()
        until(lambda: stream._sender.is_idle, "the stream has lost its call")
        assert len(gateway.streams) == 1
        assert stream.write(rows(2)).result(timeout=PATIENCE_SECONDS).sequence == 2
    assert values_of(gateway) == [1, 2]
    assert len(gateway.streams) == 2


def test_a_refusal_that_time_heals_is_no_refusal(gateway, connection):
    gateway.refusals = {2: BUSY}
    with connection.stream("birds") as stream:
        futures = [stream.write(rows(number)) for number in range(4)]
    assert [future.result().sequence for future in futures] == [1, 2, 3, 4]
    assert values_of(gateway) == list(range(4))


def busy(gateway: StreamGateway, place: str, after_ms: int) -> None:
    """Lets the next batch be refused once, with the time after which to send it again."""
    failure = Failure(StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED: the disk is full", "53100", after_ms)
    if place == "note":
        gateway.refusals = {1: {**BUSY, "retry_after_ms": after_ms}}
    elif place == "trailer":
        gateway.failures = {1: failure}
    else:
        gateway.fails_to_open = failure


@pytest.mark.parametrize("place", ["note", "trailer"])
def test_a_batch_is_sent_again_when_the_gateway_asks_for_it_and_not_earlier(gateway, connection, place):
    # Without being asked, the stream would wait for at most 50 ms.
    busy(gateway, place, 300)
    with connection.stream("birds") as stream:
        stream.write(rows(1))
    assert values_of(gateway) == [1]
    _, refused, taken = gateway.begun_at
    assert taken - refused >= 0.3


@pytest.mark.parametrize("place", ["note", "trailer", "opening"])
def test_a_stream_does_not_wait_for_longer_than_it_has_time(gateway, connection, place):
    stream = connection.stream("birds", retry_timeout=10 * PATIENCE_SECONDS)
    busy(gateway, place, 3_600_000)
    future = stream.write(rows(1))
    error = future.exception(timeout=PATIENCE_SECONDS)
    assert isinstance(error, volary.ResourceExhaustedError)
    assert error.retry_after == 3600
    with pytest.raises(volary.ResourceExhaustedError, match="could not go on within") as caught:
        stream.flush()
    assert caught.value.retry_after == 3600
    stream.close()
    assert len(gateway.begun_at) == 2


def test_a_stream_that_is_refused_says_when_to_open_it_again(gateway, connection):
    busy(gateway, "opening", 1500)
    with pytest.raises(volary.ResourceExhaustedError) as caught:
        connection.stream("birds")
    assert (caught.value.sqlstate, caught.value.retry_after) == ("53100", 1.5)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (KILLED, volary.CancelledError),
        (Failure(StatusCode.NOT_FOUND, "NOT_FOUND: table birds was dropped"), volary.NotFoundError),
        (Failure(StatusCode.PERMISSION_DENIED, "PERMISSION_DENIED: ada may not INSERT"), volary.PermissionDeniedError),
    ],
    ids=["killed", "dropped", "revoked"],
)
def test_an_error_that_no_time_heals_ends_the_stream(gateway, connection, failure, kind):
    said = failure.message.split(": ")[1]
    gateway.failures = {3: failure}
    with connection.stream("birds") as stream:
        futures = [stream.write(rows(number)) for number in range(5)]
        with pytest.raises(kind, match=said):
            stream.flush()
        with pytest.raises(kind, match=said):
            stream.write(rows(5))
        # Which batches are in the table is known, whatever got lost at the end of the call.
        assert [future.result(timeout=PATIENCE_SECONDS).sequence for future in futures[:2]] == [1, 2]
        for future in futures[2:]:
            with pytest.raises(kind, match=said):
                future.result(timeout=PATIENCE_SECONDS)
    assert values_of(gateway) == [0, 1]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"sequence": 2, "outcome": "eaten"}, "the gateway's note .*eaten"),
        ({"sequence": "two", "outcome": "committed"}, "the gateway's note .*two"),
        ({"sequence": 2, "outcome": "refused"}, "the gateway's note .*refused"),
        ({"sequence": 2, "outcome": "refused", "error": {"code": "ODD", "message": ""}}, "the gateway's note .*ODD"),
        ({"sequence": 7, "rows": 1, "outcome": "committed"}, "has answered batch 7, and the next to answer is 2"),
    ],
    ids=["unknown outcome", "no number", "no error", "unknown code", "another batch"],
)
def test_an_answer_that_cannot_be_understood_ends_the_stream(gateway, connection, answer, said):
    gateway.answers = {2: answer}
    stream = connection.stream("birds")
    futures = [stream.write(rows(number)) for number in range(2)]
    # The gateway is asked what it has written.
    assert [future.result(timeout=PATIENCE_SECONDS).is_duplicate for future in futures] == [False, True]
    with pytest.raises(volary.InternalError, match=said):
        stream.close()


def test_an_answer_without_a_meaning_is_passed_over(gateway, connection):
    gateway.answers = {1: {"news_of_a_later_release": {}}}
    stream = connection.stream("birds")
    futures = [stream.write(rows(number)) for number in range(2)]
    wait(futures, timeout=PATIENCE_SECONDS)
    # The first batch has no answer, so the answer to the second one is out of turn.
    with pytest.raises(volary.InternalError, match="has answered batch 2, and the next to answer is 1"):
        stream.close()


# Refused batches


def test_a_refused_batch_ends_the_stream(gateway, connection):
    gateway.refusals = {3: BAD}
    with connection.stream("birds") as stream:
        futures = [stream.write(rows(number)) for number in range(5)]
        with pytest.raises(volary.InvalidArgumentError, match="column name is NULL in row 1") as caught:
            futures[2].result(timeout=PATIENCE_SECONDS)
        assert caught.value.sqlstate == "23502"
        assert [future.result(timeout=PATIENCE_SECONDS).sequence for future in futures[:2]] == [1, 2]
        for future in futures[3:]:
            with pytest.raises(volary.InvalidArgumentError, match=r"batch . is not acknowledged.*batch 3 was ref"):
                future.result(timeout=PATIENCE_SECONDS)
        with pytest.raises(volary.InvalidArgumentError, match="batch 3 was refused, which has ended the stream"):
            stream.write(rows(6))
        # The program has got the error, so the block does not raise it.
    assert values_of(gateway) == [0, 1]
    assert stream.last_sequence == 2


def _write_and_leave(stream: volary.WriteStream, count: int) -> None:
    with stream:
        for number in range(count):
            stream.write(rows(number))


def test_leaving_the_block_raises_an_error_that_nobody_has_got(gateway, connection):
    gateway.refusals = {2: BAD}
    with pytest.raises(volary.InvalidArgumentError, match="batch 2 was refused"):
        _write_and_leave(connection.stream("birds"), 2)
    assert values_of(gateway) == [0]


def test_a_stream_may_go_on_after_refused_batches(gateway, connection):
    gateway.refusals = {2: BAD, 4: BAD}
    with connection.stream("birds", continue_on_error=True) as stream:
        futures = [stream.write(rows(number)) for number in range(5)]
        stream.flush()
        assert stream.last_sequence == 5
        assert [future.exception() is None for future in futures] == [True, False, True, False, True]
    assert values_of(gateway) == [0, 2, 4]
    assert len(gateway.streams) == 1


def test_leaving_the_block_raises_the_first_of_several_refusals(gateway, connection):
    gateway.refusals = {1: BAD, 2: BAD, 4: BAD}
    stream = connection.stream("birds", continue_on_error=True)
    assert isinstance(stream.write(rows(0)).exception(timeout=PATIENCE_SECONDS), volary.InvalidArgumentError)
    with pytest.raises(volary.InvalidArgumentError, match="column name is NULL") as caught:
        _write_and_leave(stream, 4)
    assert caught.value.__notes__ == ["2 batches of the stream were refused, and this is the error of the first."]
    assert values_of(gateway) == [1, 3]


def test_a_refusal_that_the_gateway_has_forgotten_leaves_no_gap(gateway, far, proxy):
    gateway.refusals = {2: BAD, 3: BAD}
    with far.stream("birds", continue_on_error=True) as stream:
        futures = [stream.write(rows(number)) for number in range(3)]
        assert [future.exception(timeout=PATIENCE_SECONDS) is None for future in futures] == [True, False, False]
        proxy.cut()
        until(lambda: stream._sender.is_idle, "the stream has lost its call")
        assert stream.write(rows(3)).result(timeout=PATIENCE_SECONDS) == Acknowledgement(4, 1, False)
        assert stream.last_sequence == 4
    assert values_of(gateway) == [0, 3]


def test_a_lost_refusal_comes_again(gateway, far, proxy):
    def refuse_and_cut() -> None:
        gateway.refusals[2] = BAD
        proxy.cut()

    gateway.when_applied = {1: refuse_and_cut}
    with far.stream("birds", continue_on_error=True) as stream:
        futures = [stream.write(rows(number)) for number in range(3)]
        wait(futures, timeout=PATIENCE_SECONDS)
        assert [future.exception() is None for future in futures] == [True, False, True]
    assert values_of(gateway) == [0, 2]


def test_columns_that_the_table_does_not_have_refuse_their_batch(gateway, connection):
    gateway.unknown_column = "colour"
    stream = connection.stream("birds")
    futures = [stream.write(rows(0)), stream.write([{"k": 1, "colour": "red"}]), stream.write(rows(2))]
    with pytest.raises(volary.InvalidArgumentError, match="there is no such column"):
        futures[1].result(timeout=PATIENCE_SECONDS)
    with pytest.raises(volary.InvalidArgumentError, match=r"batch 3 is not acknowledged.*batch 2 was refused"):
        futures[2].result(timeout=PATIENCE_SECONDS)
    stream.close()
    assert values_of(gateway) == [0]


def test_a_stream_may_go_on_after_a_batch_with_other_columns_than_the_table(gateway, connection):
    gateway.unknown_column = "colour"
    with connection.stream("birds", continue_on_error=True) as stream:
        futures = [stream.write(rows(0)), stream.write([{"k": 1, "colour": "red"}]), stream.write(rows(2))]
        wait(futures, timeout=PATIENCE_SECONDS)
        assert [future.exception() is None for future in futures] == [True, False, True]
    assert values_of(gateway) == [0, 2]


def test_an_error_in_the_block_cancels_the_stream(gateway, connection):
    gateway.may_go_on.clear()
    futures = []

    def fail(stream: volary.WriteStream) -> None:
        with stream:
            futures.append(stream.write(rows(1)))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail(connection.stream("birds"))
    with pytest.raises(volary.CancelledError, match="batch 1 is not acknowledged"):
        futures[0].result(timeout=PATIENCE_SECONDS)
    until(lambda: not stream_threads(), "the threads have ended")


# Producers


def test_a_producer_goes_on_in_another_stream(gateway, connection):
    with connection.stream("birds", producer="kea") as stream:
        stream.write(rows(1))
        stream.write(rows(2))
    with connection.stream("birds", producer="kea") as stream:
        assert stream.last_sequence == 2
        assert stream.write(rows(3)).result(timeout=PATIENCE_SECONDS).sequence == 3
    assert values_of(gateway) == [1, 2, 3]


def _write_in_a_process(uri: str, sent: Any) -> None:
    with volary.connect(uri) as connection, connection.stream("birds", producer="kea") as stream:
        sent.send(stream.last_sequence)
        stream.write(rows(stream.last_sequence + 1)).result()
        # The process ends without another word, as in a crash.
        os._exit(0)


def test_a_producer_goes_on_in_another_process(gateway):
    context = multiprocessing.get_context("spawn")
    for expected in range(3):
        receiver, sender = context.Pipe(duplex=False)
        process = context.Process(target=_write_in_a_process, args=(gateway.uri, sender))
        process.start()
        assert receiver.poll(PATIENCE_SECONDS)
        assert receiver.recv() == expected
        process.join(PATIENCE_SECONDS)
        assert process.exitcode == 0
    assert values_of(gateway) == [1, 2, 3]


def test_two_streams_of_one_producer_are_noticed(gateway, far, proxy):
    with far.stream("birds", producer="kea") as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        gateway.decided["kea"].append(pa.table({"k": [7]}))
        proxy.cut()
        until(lambda: stream._sender.is_idle, "the stream has lost its call")
        gateway.decided["kea"].append(pa.table({"k": [8]}))
        with pytest.raises(volary.AlreadyExistsError, match="another stream uses the same producer"):
            stream.write(rows(2)).result(timeout=PATIENCE_SECONDS)


def test_rows_of_another_stream_under_the_same_number_are_no_duplicate(gateway, far, proxy):
    with far.stream("birds", producer="kea") as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        proxy.cut()
        until(lambda: stream._sender.is_idle, "the stream has lost its call")
        gateway.decided["kea"].append(pa.table({"k": [7]}))
        with pytest.raises(volary.AlreadyExistsError, match="other rows"):
            stream.write(rows(2)).result(timeout=PATIENCE_SECONDS)


def test_a_producer_that_the_gateway_has_forgotten_is_noticed(gateway, far, proxy):
    with far.stream("birds", producer="kea") as stream:
        stream.write(rows(1)).result(timeout=PATIENCE_SECONDS)
        gateway.decided.clear()
        proxy.cut()
        until(lambda: stream._sender.is_idle, "the stream has lost its call")
        with pytest.raises(volary.NotFoundError, match=r"knows batches up to 0 .* but has acknowledged up to 1"):
            stream.write(rows(2)).result(timeout=PATIENCE_SECONDS)


def test_a_session_that_has_expired_is_opened_again(gateway, background):
    with volary.connect(gateway.uri, username="ada", password="secret") as connection:
        gateway.fails_to_open = Failure(StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED: the token has expired")
        gateway.may_log_in.clear()
        opening = background(connection.stream, "birds", schema="s")
        until(lambda: gateway.calls.count("Handshake") == 2, "the client logs in again")
        gateway.fails_to_open = None
        gateway.may_log_in.set()
        with opening.result(timeout=PATIENCE_SECONDS) as stream:
            stream.write(rows(1))
    assert values_of(gateway) == [1]


def test_a_session_without_a_password_is_not_opened_again(gateway, connection):
    gateway.fails_to_open = Failure(StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED: the token has expired")
    with pytest.raises(volary.UnauthenticatedError, match="the token has expired"):
        connection.stream("birds")


def test_the_status_of_a_batch_can_be_asked(gateway, connection):
    assert connection.batch_status("birds", "kea") == volary.BatchStatus(0, 0, "unknown", None)
    with connection.stream("birds", producer="kea") as stream:
        stream.write(rows(1))
    assert connection.batch_status("birds", "kea", 1, schema="s").outcome == "committed"
    assert gateway.statuses == [
        {"table": '"birds"', "producer": "kea"},
        {"table": '"s"."birds"', "producer": "kea", "sequence": 1},
    ]


# Threads


def test_many_threads_write_to_one_stream_while_its_connection_is_cut(gateway, far, proxy):
    gateway.when_applied = {100: proxy.cut, 200: proxy.cut}

    def write(first: int) -> list[int]:
        futures = [stream.write(rows(first + number)) for number in range(40)]
        return [future.result(timeout=PATIENCE_SECONDS).sequence for future in futures]

    with ThreadPoolExecutor(8) as threads, far.stream("birds", window=4096) as stream:
        sequences = list(threads.map(write, range(0, 400, 40)))
    # The batches of a thread are in its order.
    assert all(numbers == sorted(numbers) for numbers in sequences)
    assert sorted(number for numbers in sequences for number in numbers) == list(range(1, 401))
    assert sorted(values_of(gateway)) == list(range(400))


def test_a_callback_may_write_but_not_wait(gateway, connection):
    raised: list[BaseException] = []

    def write_more(_: object) -> None:
        stream.write(rows(2))
        try:
            stream.flush()
        except BaseException as error:
            raised.append(error)

    gateway.may_go_on.clear()
    with connection.stream("birds") as stream:
        stream.write(rows(1)).add_done_callback(write_more)
        gateway.may_go_on.set()
        until(lambda: raised, "the callback has run")
    assert "must not wait for its stream" in str(raised[0])
    assert values_of(gateway) == [1, 2]


def test_a_batch_cannot_be_taken_back(gateway, connection):
    gateway.may_go_on.clear()
    with connection.stream("birds") as stream:
        future = stream.write(rows(1))
        assert not future.cancel()
        gateway.may_go_on.set()
    assert future.result().rows == 1


def test_a_connection_that_is_closed_ends_its_streams(gateway):
    gateway.may_go_on.clear()
    with gateway.connect() as connection:
        stream = connection.stream("birds")
        future = stream.write(rows(1))
    with pytest.raises(volary.CancelledError):
        future.result(timeout=PATIENCE_SECONDS)
    with pytest.raises(volary.CancelledError):
        stream.write(rows(2))
    with pytest.raises(RuntimeError, match="the connection is closed"):
        connection.stream("birds")


def test_a_stream_that_is_forgotten_ends(gateway, connection):
    stream = connection.stream("birds")
    forgotten = weakref.ref(stream)
    del stream
    gc.collect()
    assert forgotten() is None
    until(lambda: not stream_threads(), "the threads have ended")


_PROGRAM = """
import sys
import pyarrow as pa
import volary

connection = volary.connect(sys.argv[1])
stream = connection.stream("birds")
stream.write(pa.record_batch({"k": [1]})).result()
stream.write(pa.record_batch({"k": [2]}))
print("done", flush=True)
"""


def test_a_program_that_ends_without_closing_its_stream_ends(gateway):
    program = subprocess.run(
        [sys.executable, "-c", _PROGRAM, gateway.uri],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (program.returncode, program.stdout) == (0, "done\n"), program.stderr
    assert "Traceback" not in program.stderr


def test_a_program_without_streams_does_not_load_them():
    names = "sorted(name for name in sys.modules if name.startswith('volary._write'))"
    program = f"import sys, volary; print({names}); volary.WriteStream; volary.Acknowledgement; print(len({names}) > 0)"
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert printed == "[]\nTrue\n"
    assert set(volary.__all__) >= {"Acknowledgement", "BatchStatus", "StreamData", "WriteStream"}
    with pytest.raises(AttributeError, match="nest"):
        volary.nest  # noqa: B018


def test_a_forked_process_cannot_use_the_stream_of_its_parent(gateway, connection):
    with connection.stream("birds") as stream:
        # Forking a process that has threads of gRPC would be a warning, so the child is only imagined.
        stream._process += 1
        for use in (lambda: stream.write(rows(1)), stream.flush, stream.close):
            with pytest.raises(RuntimeError, match="a forked process must open its own"):
                use()
        stream._process -= 1


# Ctrl-C


@pytest.mark.parametrize("handler", [signal.default_int_handler, own_handler], ids=["Python's handler", "own"])
@pytest.mark.parametrize("waits", ["write", "flush", "close"])
def test_ctrl_c_ends_a_wait(gateway, connection, waits, handler):
    gateway.may_go_on.clear()
    stream = connection.stream("birds")
    first = stream.write(large(1))
    with handled_by(handler):
        pressed = threading.Thread(target=_press_when_waiting, args=(stream,))
        pressed.start()
        wait_for = {"write": lambda: stream.write(large(2)), "flush": stream.flush, "close": stream.close}[waits]
        with pytest.raises(KeyboardInterrupt):
            wait_for()
        pressed.join()
    gateway.may_go_on.set()
    if waits == "close":
        with pytest.raises(volary.CancelledError):
            first.result(timeout=PATIENCE_SECONDS)
    else:
        # The stream goes on, and the batch that was waiting is not in it.
        stream.close()
        assert values_of(gateway) == [1]


def _press_when_waiting(stream: volary.WriteStream) -> None:
    window = stream._window
    until(lambda: window._room._waiters or window._progress._waiters, "the main thread waits")
    os.kill(os.getpid(), signal.SIGINT)
