"""The network connection of a lookup."""

from __future__ import annotations

import threading

from .._channel import NO_TIMEOUT, Channel
from .._exchange import Exchange
from ..errors import CancelledError


class Line:
    """A channel over which threads open calls. It may be closed at any time.

    pyarrow crashes if a client is closed while another thread begins a call with it. Beginning a call takes long if the
    server does not answer. So the thread that ends last closes the channel.
    """

    def __init__(self, channel: Channel) -> None:
        """Takes over the channel."""
        self._channel = channel
        self._lock = threading.Lock()
        self._openings = 0
        self._is_closed = False

    def exchange(self, command: bytes) -> Exchange:
        """Starts a call that may take any time."""
        with self._lock:
            if self._is_closed:
                raise CancelledError("the network connection of the call was closed before it was opened")
            self._openings += 1
        try:
            return self._channel.exchange(command, timeout=NO_TIMEOUT)
        finally:
            with self._lock:
                self._openings -= 1
            self._close_if_unused()

    def close(self) -> None:
        """Closes the channel as soon as no thread opens a call. Calls that are open go on."""
        with self._lock:
            self._is_closed = True
        self._close_if_unused()

    def _close_if_unused(self) -> None:
        with self._lock:
            is_unused = self._is_closed and self._openings == 0
        if is_unused:
            # Closing a channel more than once does nothing.
            self._channel.close()
