"""A server that pretends to be the workers' gateway. It does not have the nodes' secret. A test sets its answers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import grpc
import protobuf as pb
from processes import until

_SERVICE = "arrow.flight.protocol.FlightService"


@dataclass(frozen=True)
class ReceivedAction:
    """An action that a worker has sent to the rogue gateway."""

    action: str
    body: bytes
    headers: dict[str, str]

    def contains(self, text: str) -> bool:
        """Returns whether the text is anywhere in the action."""
        parts = [self.action.encode(), self.body, *(value.encode() for value in self.headers.values())]
        return any(text.encode() in part for part in parts)


class RogueGateway:
    """A rogue gateway as a context manager.

    `answer` gets an action and its sealed body, and returns the answer, or None to end the call without an answer.
    """

    def __init__(
        self,
        answer: Callable[[str, bytes], bytes | None],
        address: str = "127.0.0.1:0",
        credentials: grpc.ServerCredentials | None = None,
    ) -> None:
        self.received: list[ReceivedAction] = []
        self._answer = answer
        self._server = grpc.server(ThreadPoolExecutor(8), options=[("grpc.so_reuseport", 0)])
        handlers = {"DoAction": grpc.unary_stream_rpc_method_handler(self._do_action)}
        self._server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(_SERVICE, handlers)])
        # The system may keep connections of the address's former owner for a moment.
        port = until(lambda: self._listen(address, credentials), f"{address} is free")
        self.address = f"127.0.0.1:{port}"

    def __enter__(self) -> RogueGateway:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(grace=None).wait()

    def received_of(self, action: str) -> list[ReceivedAction]:
        """Returns what workers have sent as this action."""
        return [sent for sent in self.received if sent.action == action]

    def _listen(self, address: str, credentials: grpc.ServerCredentials | None) -> int:
        try:
            if credentials is None:
                return self._server.add_insecure_port(address)
            return self._server.add_secure_port(address, credentials)
        except RuntimeError:
            return 0

    def _do_action(self, request: bytes, context: grpc.ServicerContext) -> Iterator[bytes]:
        said = pb.fields(request)
        headers = {key: str(value) for key, value in context.invocation_metadata()}
        received = ReceivedAction(said[1].decode(), said.get(2, b""), headers)
        self.received.append(received)
        answer = self._answer(received.action, received.body)
        if answer is not None:
            yield pb.field(1, answer)
