"""Tests the client's errors: one class per code, whatever pyarrow adds to the server's text. No server is needed."""

import pickle

import grpc
import pyarrow as pa
import pytest
from stub_gateway import Answer, Failure, StubGateway

import volary
from volary import ErrorCode, dbapi
from volary._translate import parse
from volary.errors import ERROR_CLASSES

MESSAGE = 'no table "ordrs" (in schema public; did you mean "orders"?)\nline 1, column 15'
SCHEMA = pa.schema([("n", pa.int64())])
ROWS = pa.record_batch([[1, 2, 3]], schema=SCHEMA)
RETRYABLE = {ErrorCode.RESOURCE_EXHAUSTED, ErrorCode.UNAVAILABLE, ErrorCode.DEADLINE_EXCEEDED}


def failure(code: ErrorCode, sqlstate: str | None = None) -> Failure:
    return Failure(grpc.StatusCode[code], f"{code}: {MESSAGE}", sqlstate)


def run(answer: Answer) -> None:
    with StubGateway({"statement": answer}) as stub, volary.connect(stub.uri) as connection:
        connection.sql("statement").to_arrow()


at_every_place = pytest.mark.parametrize(
    "place",
    [
        lambda failed: Answer(schema=SCHEMA, fail_at_once=failed),
        lambda failed: Answer(schema=None, fail_at_once=failed),
        lambda failed: Answer(schema=SCHEMA, fail_after_batches=failed),
        lambda failed: Answer(schema=SCHEMA, batches=[ROWS, ROWS], fail_after_batches=failed),
    ],
    ids=["at once", "of an update", "before the first batch", "after two batches"],
)


@pytest.mark.parametrize("code", ErrorCode)
@at_every_place
def test_an_error_keeps_its_code_and_message_wherever_it_happens(code, place):
    with pytest.raises(volary.Error) as caught:
        run(place(failure(code)))
    assert type(caught.value) is ERROR_CLASSES[code]
    assert caught.value.code == code
    assert caught.value.message == MESSAGE
    assert str(caught.value) == f"{code}: {MESSAGE}"
    assert caught.value.retryable == (code in RETRYABLE)
    assert caught.value.sqlstate is None


@at_every_place
def test_an_error_has_its_sqlstate_wherever_it_happens(place):
    with pytest.raises(volary.NotFoundError) as caught:
        run(place(failure(ErrorCode.NOT_FOUND, "42P01")))
    assert caught.value.sqlstate == "42P01"


@at_every_place
def test_an_error_says_in_how_many_seconds_to_try_again_wherever_it_happens(place):
    busy = Failure(grpc.StatusCode.RESOURCE_EXHAUSTED, "RESOURCE_EXHAUSTED: the disk is full", retry_after_ms=2500)
    with pytest.raises(volary.ResourceExhaustedError) as caught:
        run(place(busy))
    assert caught.value.retry_after == 2.5
    with (
        StubGateway({"statement": place(busy)}) as stub,
        dbapi.connect(stub.uri) as connection,
        pytest.raises(dbapi.OperationalError) as caught_by_module,
    ):
        connection.execute("statement").fetchall()
    assert caught_by_module.value.retry_after == 2.5


# With a negative number, a server asks gRPC not to repeat the call.
@pytest.mark.parametrize(("after_ms", "seconds"), [(0, 0.0), (None, None), (-1, None)])
def test_a_server_may_not_say_when_to_try_again(after_ms, seconds):
    gone = Failure(grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE: worker w3 is gone", retry_after_ms=after_ms)
    with pytest.raises(volary.UnavailableError) as caught:
        run(Answer(fail_at_once=gone))
    assert caught.value.retry_after == seconds


def test_each_error_of_a_connection_has_its_own_sqlstate():
    answers = {
        code: Answer(schema=SCHEMA, batches=[ROWS], fail_after_batches=failure(ErrorCode.NOT_FOUND, code))
        for code in ("42P01", "42703")
    }
    answers["fine"] = Answer(schema=SCHEMA, batches=[ROWS])
    answers["unknown"] = Answer(schema=SCHEMA, fail_at_once=failure(ErrorCode.INTERNAL))

    def sqlstate_of(result: volary.Result) -> str | None:
        with pytest.raises(volary.Error) as caught:
            result.to_arrow()
        return caught.value.sqlstate

    with StubGateway(answers) as stub, volary.connect(stub.uri) as connection:
        # The results are open at the same time, and are read in another order.
        results = [connection.sql(code) for code in ("42P01", "42703", "fine")]
        assert results[2].to_arrow().num_rows == 3
        assert sqlstate_of(results[1]) == "42703"
        with pytest.raises(volary.InternalError) as caught:
            connection.sql("unknown").to_arrow()
        assert caught.value.sqlstate is None
        assert sqlstate_of(results[0]) == "42P01"


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        (
            "Flight returned invalid argument error, with message: INVALID_ARGUMENT: near (a. b). gRPC client debug "
            "context: INVALID_ARGUMENT:INVALID_ARGUMENT: near (a. b). Client context: OK",
            ErrorCode.INVALID_ARGUMENT,
            "near (a. b)",
        ),
        (
            "Flight returned invalid argument error, with message: RESOURCE_EXHAUSTED: memory\nis full. gRPC client "
            "debug context: RESOURCE_EXHAUSTED:RESOURCE_EXHAUSTED: memory\nis full. Client context: OK",
            ErrorCode.RESOURCE_EXHAUSTED,
            "memory\nis full",
        ),
        (
            "Flight returned timeout error, with message: Deadline Exceeded. gRPC client debug context: "
            "DEADLINE_EXCEEDED:Deadline Exceeded. Client context: OK",
            ErrorCode.DEADLINE_EXCEEDED,
            "the timeout of connect() or sql() has expired",
        ),
        (
            "Flight cancelled call, with message: Stream removed (CANCELLED). gRPC client debug context: "
            "CANCELLED:Stream removed (CANCELLED). Client context: OK",
            ErrorCode.CANCELLED,
            "the statement was cancelled by this client",
        ),
        (
            "Flight returned invalid argument error, with message: decoded message length too large. gRPC client debug "
            "context: OUT_OF_RANGE:decoded message length too large. Client context: OK",
            ErrorCode.RESOURCE_EXHAUSTED,
            "decoded message length too large",
        ),
        (
            "Unknown: Flight returned already exists error, with message: ALREADY_EXISTS: table t",
            ErrorCode.ALREADY_EXISTS,
            "table t",
        ),
        (
            "Flight returned unavailable error, with message: failed to connect to all addresses",
            ErrorCode.DATA_LOSS,
            "failed to connect to all addresses",
        ),
        (
            "Flight returned not found error, with message: NOT_FOUND: no table UNAVAILABLE: x",
            ErrorCode.NOT_FOUND,
            "no table UNAVAILABLE: x",
        ),
        ("words of nobody in particular", ErrorCode.DATA_LOSS, "words of nobody in particular"),
        ("", ErrorCode.DATA_LOSS, "no message was given"),
    ],
)
def test_the_code_is_the_servers_then_grpcs_then_the_fallback(text, code, message):
    error = parse(text, fallback=ErrorCode.DATA_LOSS)
    assert (error.code, error.message) == (code, message)


def test_an_error_survives_a_process_pool():
    raised = volary.UnavailableError("worker w3 is gone", sqlstate="57P03", retry_after=0.5)
    error = pickle.loads(pickle.dumps(raised))
    assert type(error) is volary.UnavailableError
    assert str(error) == "UNAVAILABLE: worker w3 is gone"
    assert (error.sqlstate, error.retry_after) == ("57P03", 0.5)


def test_a_timeout_of_one_statement_ends_it():
    with (
        StubGateway({"statement": Answer(schema=SCHEMA, hangs_after_batches=True)}) as stub,
        volary.connect(stub.uri) as connection,
        pytest.raises(volary.DeadlineExceededError),
    ):
        connection.sql("statement", timeout=1).to_arrow()


def test_a_timeout_of_the_connection_holds_for_its_statements():
    with (
        StubGateway({"statement": Answer(schema=SCHEMA, hangs_after_batches=True)}) as stub,
        volary.connect(stub.uri, timeout=1) as connection,
        pytest.raises(volary.DeadlineExceededError),
    ):
        connection.sql("statement").to_arrow()


def test_nobody_at_the_address_is_said_at_connect():
    with pytest.raises(volary.UnavailableError, match=r"no gateway answers at grpc://127\.0\.0\.1:1: .*refused"):
        volary.connect("grpc://127.0.0.1:1")


@pytest.mark.parametrize(
    ("arguments", "match"),
    [
        ({"token": "t", "username": "ada"}, "not both"),
        ({"password": "secret"}, "without a username"),
        ({"tls_ca": "ca.pem"}, r"is not encrypted: write grpc\+tls://"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused_before_anything_is_sent(arguments, match):
    with pytest.raises(volary.InvalidArgumentError, match=match):
        volary.connect("grpc://127.0.0.1:1", **arguments)


@pytest.mark.parametrize("uri", ["127.0.0.1:7100", "http://127.0.0.1:7100", "grpc://host", "grpc://host:x"])
def test_a_malformed_address_is_refused_with_the_right_form(uri):
    with pytest.raises(volary.InvalidArgumentError, match="grpc://HOST:PORT"):
        volary.connect(uri)
