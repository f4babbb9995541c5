"""Tests what the client does with one statement, as seen by a gateway. No server is needed."""

import datetime
import decimal
import gc
import os
import signal
import socket
import threading
import uuid

import grpc
import polars
import pyarrow as pa
import pytest
from interrupts import handled_by, own_handler, pressed_when
from processes import PATIENCE_SECONDS
from stub_gateway import Answer, Failure, StubGateway

import volary
from volary._exchange import Exchange

SCHEMA = pa.schema([("n", pa.int64()), ("name", pa.string())])
FIRST = pa.record_batch([[1, 2], ["one", None]], schema=SCHEMA)
SECOND = pa.record_batch([[3], ["three"]], schema=SCHEMA)
ROWS = [(1, "one"), (2, None), (3, "three")]

ANSWERS = {
    "rows": Answer(schema=SCHEMA, batches=[FIRST, SECOND]),
    "nothing": Answer(schema=SCHEMA),
    "insert": Answer(count=1),
    "hangs": Answer(schema=SCHEMA, batches=[FIRST], hangs_after_batches=True),
    "parts": Answer(schema=SCHEMA, batches=[FIRST], parts=2),
    "hangs at once": Answer(count=1, hangs_at_once=True),
    "waits until it may": Answer(count=1, waits=True),
    "inserts and hangs": Answer(count=1, hangs_after_batches=True),
    "inserts and breaks": Answer(
        count=1, fail_after_batches=Failure(grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE: the gateway is gone")
    ),
    "breaks": Answer(
        schema=SCHEMA,
        batches=[FIRST],
        fail_after_batches=Failure(grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE: worker w3 is gone"),
    ),
    "breaks at once": Answer(
        schema=SCHEMA, fail_after_batches=Failure(grpc.StatusCode.DATA_LOSS, "DATA_LOSS: segment 7 of table t")
    ),
}


@pytest.fixture
def stub():
    with StubGateway(ANSWERS) as stub:
        yield stub


@pytest.fixture
def connection(stub):
    with volary.connect(stub.uri) as connection:
        stub.calls.clear()
        yield connection


def test_a_query_is_read_in_every_form(connection):
    result = connection.sql("rows")
    assert result.schema == SCHEMA
    assert result.rows_affected is None
    assert result.rows() == ROWS
    assert result.to_arrow() == pa.Table.from_batches([FIRST, SECOND])
    assert result.to_pandas()["n"].tolist() == [1, 2, 3]
    assert result.to_polars()["name"].to_list() == ["one", None, "three"]
    assert [batch.num_rows for batch in result.batches()] == [2, 1]


def test_batches_are_handed_out_once(connection):
    result = connection.sql("rows")
    assert list(result.batches()) == [FIRST, SECOND]
    for read_again in (result.batches, result.to_arrow, result.rows, result.reader):
        with pytest.raises(RuntimeError, match="was read batch by batch; run the statement again"):
            read_again()
    assert repr(result) == "<volary.Result: was read batch by batch; columns n, name>"


def test_a_result_without_rows_has_its_columns(connection):
    result = connection.sql("nothing")
    assert result.to_arrow() == SCHEMA.empty_table()
    assert result.rows() == []
    assert repr(result).startswith("n      name\n")


def test_other_libraries_take_a_result_as_it_is(connection):
    assert pa.table(connection.sql("rows")).num_rows == 3
    assert polars.DataFrame(connection.sql("rows")).shape == (3, 2)
    assert connection.sql("rows").reader().read_all().num_rows == 3


def test_a_query_is_one_call(connection, stub):
    connection.sql("rows").to_arrow()
    assert stub.calls == ["DoExchange rows"]


def test_a_result_says_its_query_and_at_its_end_what_it_took(connection):
    result = connection.sql("rows")
    assert result.query_id == "q1"
    batches = result.batches()
    assert next(batches) == FIRST
    assert result.statistics is None
    assert list(batches) == [SECOND]
    assert (result.statistics.rows, result.statistics.planning_us, result.statistics.workers) == (3, 7, 0)
    assert connection.sql("insert").statistics.planning_us == 7


def test_an_update_runs_once_and_says_how_many_rows(connection, stub):
    result = connection.sql("insert")
    assert result.rows_affected == 1
    assert result.schema == pa.schema([])
    assert result.rows() == []
    assert repr(result) == "<volary.Result: no rows, 1 rows affected>"
    assert stub.calls == ["DoExchange insert"]


def test_parameters_are_sent_by_position_with_their_types(connection, stub):
    day = datetime.date(2026, 11, 21)
    values = [7, 2.5, "x", None, True, day, decimal.Decimal("1.20"), b"\0", uuid.UUID(int=1)]
    connection.sql("rows", values).to_arrow()
    (sent,) = stub.parameters
    assert sent.to_pylist() == [dict(zip(map(str, range(9)), [*values[:-1], str(uuid.UUID(int=1))], strict=True))]
    assert sent.schema.field("6").type == pa.decimal128(3, 2)


def test_arrow_data_with_many_rows_runs_an_update_for_each(connection, stub):
    table = pa.concat_tables([pa.table({"a": [1, 2]}), pa.table({"a": [3]})])
    assert connection.sql("insert", table).rows_affected == 3
    assert [batch.column(0).to_pylist() for batch in stub.parameters] == [[1, 2], [3]]
    assert connection.sql("insert", FIRST).rows_affected == 2


def test_arrow_data_without_rows_is_refused(connection):
    assert connection.sql("rows", pa.table({"a": [1]})).to_arrow().num_rows == 3
    with pytest.raises(volary.InvalidArgumentError, match="have no rows"):
        connection.sql("insert", SCHEMA.empty_table())


@pytest.mark.parametrize("parameters", ["text", b"bytes", 7, {"a": 1}, iter([1])])
def test_parameters_that_are_not_a_list_are_a_type_error(connection, parameters):
    with pytest.raises(TypeError, match="a list or tuple with one value per"):
        connection.sql("rows", parameters)


def test_a_parameter_without_an_arrow_type_is_named(connection):
    with pytest.raises(volary.InvalidArgumentError, match=r"parameter 2 \(<object object"):
        connection.sql("rows", [1, object()])


def test_the_preview_takes_nothing_from_the_result(connection):
    result = connection.sql("rows")
    assert repr(result).splitlines() == [
        "n      name",
        "int64  string",
        "1      one",
        "2      NULL",
        "3      three",
        "(3 rows)",
    ]
    assert result.rows() == ROWS


def test_an_error_in_mid_stream_comes_after_the_batches_before_it(connection):
    batches = connection.sql("breaks").batches()
    assert next(batches) == FIRST
    with pytest.raises(volary.UnavailableError, match="worker w3 is gone"):
        next(batches)


def test_a_reader_raises_the_clients_errors(connection):
    with pytest.raises(volary.UnavailableError, match="worker w3 is gone"):
        connection.sql("breaks").reader().read_all()


def test_a_failed_result_says_so_and_gives_no_rows(connection):
    result = connection.sql("breaks at once")
    assert repr(result) == "<volary.Result: DATA_LOSS: segment 7 of table t>"
    with pytest.raises(RuntimeError, match="segment 7"):
        result.to_arrow()


def leave_by_closing_the_result(result):
    result.close()


def leave_by_with(result):
    with result:
        next(result.batches())


def leave_by_breaking_out_of_the_loop(result):
    for _ in result.batches():
        break


@pytest.mark.parametrize(
    "leave",
    [
        leave_by_closing_the_result,
        leave_by_with,
        leave_by_breaking_out_of_the_loop,
    ],
)
def test_a_result_that_is_left_ends_the_query_on_the_server(connection, stub, leave):
    result = connection.sql("hangs")
    assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
    leave(result)
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)


def test_a_result_that_is_forgotten_ends_the_query_on_the_server(connection, stub):
    result = connection.sql("hangs")
    assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
    del result
    gc.collect()
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)


def test_a_connection_that_is_closed_ends_its_queries_on_the_server(connection, stub):
    result = connection.sql("hangs")
    assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
    connection.close()
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)
    assert "was closed before it was read" in repr(result)
    with pytest.raises(RuntimeError, match="was closed before it was read"):
        result.to_arrow()


def test_a_connection_that_is_closed_ends_a_statement_that_has_not_answered(connection, stub, background):
    def close_when_it_waits():
        assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
        connection.close()

    closing = background(close_when_it_waits)
    with pytest.raises(volary.CancelledError):
        connection.sql("hangs at once")
    closing.result(timeout=PATIENCE_SECONDS)
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)


def test_a_connection_that_is_closed_ends_the_statements_of_other_threads(connection, stub, background):
    waiting = background(connection.sql, "hangs at once")
    assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
    connection.close()
    with pytest.raises(volary.CancelledError):
        waiting.result(timeout=PATIENCE_SECONDS)
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)


def test_a_write_that_was_acknowledged_has_succeeded_whatever_comes_then(connection):
    result = connection.sql("inserts and breaks")
    assert result.rows_affected == 1
    assert result.statistics is None


@pytest.fixture
def closed_at_first_note(connection, monkeypatch):
    """A connection that is closed as soon as a statement has its first answer."""
    begin = volary._exchange.Exchange.begin

    def begin_and_close(*arguments):
        answer = begin(*arguments)
        connection.close()
        return answer

    monkeypatch.setattr("volary._exchange.Exchange.begin", begin_and_close)
    return connection


@pytest.mark.parametrize("statement", ["insert", "inserts and hangs"])
def test_a_write_has_succeeded_if_its_connection_is_closed_after_the_answer(closed_at_first_note, statement):
    assert closed_at_first_note.sql(statement).rows_affected == 1
    with pytest.raises(RuntimeError, match="the connection is closed"):
        closed_at_first_note.sql(statement)


@pytest.mark.parametrize("statement", ["hangs", "parts"])
def test_a_query_ends_if_its_connection_is_closed_after_the_first_answer(closed_at_first_note, stub, statement):
    with pytest.raises(RuntimeError, match="the connection is closed"):
        closed_at_first_note.sql(statement)
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)


def test_a_timeout_is_that_of_all_parts_together(connection, stub):
    result = connection.sql("parts", direct=True, threads=1, timeout=6)
    assert result.to_arrow().num_rows == 2 * FIRST.num_rows
    first, second = stub.seconds_of_parts
    # The first part took a quarter of the time that was left for it.
    assert second < first * 0.8


def test_a_timeout_that_has_passed_asks_nobody(connection, stub):
    with pytest.raises(volary.DeadlineExceededError, match="the timeout of connect"):
        connection.sql("rows", timeout=0)
    assert stub.calls == []


@pytest.mark.parametrize("handler", [signal.default_int_handler, own_handler], ids=["python", "own"])
def test_ctrl_c_cancels_a_query_that_waits(connection, stub, monkeypatch, handler):
    reads, read = threading.Event(), Exchange.read

    def read_and_tell(exchange):
        reads.set()
        return read(exchange)

    batches = connection.sql("hangs").batches()
    assert next(batches) == FIRST
    monkeypatch.setattr(Exchange, "read", read_and_tell)
    with handled_by(handler), pressed_when(reads), pytest.raises(KeyboardInterrupt):
        next(batches)
    assert stub.stream_ended.wait(timeout=PATIENCE_SECONDS)
    assert connection.sql("rows").rows() == ROWS


def test_a_handler_of_ctrl_c_that_goes_on_lets_the_statement_go_on(connection, stub):
    with handled_by(lambda *_: stub.may_answer.set()), pressed_when(stub.stream_hangs):
        assert connection.sql("waits until it may").rows_affected == 1


def test_a_handler_of_another_signal_is_run_while_a_statement_waits(connection, stub):
    def release():
        assert stub.stream_hangs.wait(timeout=PATIENCE_SECONDS)
        os.kill(os.getpid(), signal.SIGUSR1)

    releaser = threading.Thread(target=release)
    before = signal.signal(signal.SIGUSR1, lambda *_: stub.may_answer.set())
    try:
        with handled_by(signal.default_int_handler):
            releaser.start()
            assert connection.sql("waits until it may").rows_affected == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
    releaser.join()


@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL, signal.default_int_handler])
def test_no_thread_waits_for_a_program_without_handlers(stub, handler):
    before = set(threading.enumerate())
    with handled_by(handler), volary.connect(stub.uri) as connection:
        assert connection.sql("rows").rows() == ROWS
        started = set(threading.enumerate()) - before
        assert "volary" not in {thread.name for thread in started}


@pytest.mark.parametrize("handler", [signal.default_int_handler, own_handler], ids=["python", "own"])
def test_who_is_woken_by_signals_otherwise_still_is(connection, handler):
    told, tells = socket.socketpair()
    with told, tells, handled_by(handler):
        tells.setblocking(False)
        before = signal.set_wakeup_fd(tells.fileno())
        try:
            assert connection.sql("rows").rows() == ROWS
            assert signal.set_wakeup_fd(tells.fileno()) == tells.fileno()
        finally:
            signal.set_wakeup_fd(before)


def test_signals_that_come_meanwhile_are_handed_on(connection, stub):
    told, tells = socket.socketpair()
    with told, tells, handled_by(signal.default_int_handler), pressed_when(stub.stream_hangs):
        tells.setblocking(False)
        told.settimeout(PATIENCE_SECONDS)
        before = signal.set_wakeup_fd(tells.fileno())
        try:
            with pytest.raises(KeyboardInterrupt):
                connection.sql("hangs at once")
            assert told.recv(1) == bytes([signal.SIGINT])
        finally:
            signal.set_wakeup_fd(before)


def test_a_connection_is_used_from_another_thread(connection):
    found = []
    thread = threading.Thread(target=lambda: found.extend(connection.sql("rows").rows()))
    thread.start()
    thread.join()
    assert found == ROWS


def test_two_results_are_open_at_once(connection):
    one, two = connection.sql("rows").batches(), connection.sql("rows").batches()
    assert [next(one), next(two), next(one), next(two)] == [FIRST, FIRST, SECOND, SECOND]


def test_credentials_and_headers_go_with_every_call(stub):
    with volary.connect(stub.uri, token="secret", headers={"X-Trace": "t1"}) as connection:
        connection.sql("rows").to_arrow()
    assert {headers["authorization"] for headers in stub.headers} == {"Bearer secret"}
    assert {headers["x-trace"] for headers in stub.headers} == {"t1"}


def test_a_password_is_exchanged_for_a_token(stub):
    with volary.connect(stub.uri, username="ada", password="secret") as connection:
        connection.sql("rows").to_arrow()
    assert stub.calls[0] == "Handshake"
    assert {headers["authorization"] for headers in stub.headers[1:]} == {"Bearer session-token"}


def test_the_address_comes_from_the_environment(stub, monkeypatch):
    monkeypatch.setenv("VOLARY_URI", stub.uri)
    with volary.connect() as connection:
        assert connection.uri == stub.uri
        assert repr(connection) == f"<volary.Connection to {stub.uri}>"
    assert repr(connection).endswith("(closed)>")
    with pytest.raises(RuntimeError, match="the connection is closed"):
        connection.sql("rows")
