"""Reads URLs such as `volary://user:password@host:7100/schema?tls=true`."""

from __future__ import annotations

from typing import Any
from urllib.parse import ParseResult, unquote

from ..errors import InvalidArgumentError

_DEFAULT_PORT = 7100


def arguments_of(url: ParseResult, options: dict[str, Any]) -> dict[str, Any]:
    """Returns the arguments of `Backend.do_connect`. `options` are those of the URL's query, and what the caller adds.

    Raises `InvalidArgumentError` if they contradict each other.
    """
    tls = str(options.pop("tls", "false")).lower()
    if tls not in ("true", "false"):
        raise InvalidArgumentError(f"tls must be true or false, not {tls!r}")
    host = url.hostname or "127.0.0.1"
    address = f"[{host}]" if ":" in host else host
    arguments: dict[str, Any] = {
        "uri": f"grpc{'+tls' if tls == 'true' else ''}://{address}:{url.port or _DEFAULT_PORT}"
    }
    if url.username:
        arguments |= {"username": unquote(url.username), "password": unquote(url.password or "")}
    if database := unquote(url.path.strip("/")):
        arguments["database"] = database
    if (timeout := options.pop("timeout", None)) is not None:
        arguments["timeout"] = float(timeout)
    return arguments | options
