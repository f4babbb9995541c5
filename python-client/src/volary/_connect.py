"""From the arguments of `connect` to the options of the driver."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from adbc_driver_flightsql import DatabaseOptions

from ._connection import Connection
from .errors import InvalidArgumentError, UnavailableError

DEFAULT_URI = "grpc://127.0.0.1:7100"
URI_VARIABLE = "VOLARY_URI"

# The server's batches are about 1 MiB, but one row is never split; the driver's own limit is 16 MiB.
_MAX_MESSAGE_BYTES = 1 << 30
_TLS_SCHEME = "grpc+tls"
_SCHEMES = ("grpc", "grpc+tcp", _TLS_SCHEME)


def connect(
    uri: str | None = None,
    *,
    username: str | None = None,
    password: str | None = None,
    token: str | None = None,
    timeout: float | None = None,
    tls_ca: str | os.PathLike[str] | None = None,
    tls_certificate: str | os.PathLike[str] | None = None,
    tls_key: str | os.PathLike[str] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Connection:
    """Connects to a gateway.

    Without `uri` the environment variable VOLARY_URI is taken, else `grpc://127.0.0.1:7100`. `grpc+tls://` encrypts:
    `tls_ca` is a PEM file of the authorities to trust (the system's otherwise), `tls_certificate` and `tls_key` are PEM
    files of this client's own certificate. `timeout`, in seconds, bounds each call of each statement; without one
    a query may take as long as it needs. `headers` go with every call.

    Raises `InvalidArgumentError` for arguments that do not fit together, `OSError` for a file that cannot be read,
    `UnavailableError` if nobody answers at `uri`, `UnauthenticatedError` if the credentials are wrong.
    """
    uri, options = driver_options(
        uri,
        username=username,
        password=password,
        token=token,
        timeout=timeout,
        tls_ca=tls_ca,
        tls_certificate=tls_certificate,
        tls_key=tls_key,
        headers=headers,
    )
    try:
        return Connection(uri, options)
    except UnavailableError as error:
        raise UnavailableError(f"no gateway answers at {uri}: {error.message}") from error


def driver_options(
    uri: str | None,
    *,
    username: str | None,
    password: str | None,
    token: str | None,
    timeout: float | None,
    tls_ca: str | os.PathLike[str] | None,
    tls_certificate: str | os.PathLike[str] | None,
    tls_key: str | os.PathLike[str] | None,
    headers: Mapping[str, str] | None,
) -> tuple[str, dict[str, str]]:
    """The address, and the options of the driver, for the arguments of `connect`."""
    uri = uri or os.environ.get(URI_VARIABLE) or DEFAULT_URI
    tls_files = {
        option: Path(file)
        for option, file in (
            (DatabaseOptions.TLS_ROOT_CERTS, tls_ca),
            (DatabaseOptions.MTLS_CERT_CHAIN, tls_certificate),
            (DatabaseOptions.MTLS_PRIVATE_KEY, tls_key),
        )
        if file is not None
    }
    if _scheme(uri) != _TLS_SCHEME and tls_files:
        raise InvalidArgumentError(f'TLS files were given and "{uri}" does not encrypt: write {_TLS_SCHEME}://')
    if token is not None and username is not None:
        raise InvalidArgumentError("give either a token or a username and password, not both")
    if password is not None and username is None:
        raise InvalidArgumentError("a password was given without a username")
    options = {
        # `token` may be an API key, which many connections share: then a cookie names the session. Without credentials
        # the driver takes over the bearer token of the gateway's first answer.
        DatabaseOptions.WITH_COOKIE_MIDDLEWARE.value: "true",
        DatabaseOptions.WITH_MAX_MSG_SIZE.value: str(_MAX_MESSAGE_BYTES),
    }
    if username is not None:
        options |= {"username": username, "password": password or ""}
    if token is not None:
        options[DatabaseOptions.AUTHORIZATION_HEADER.value] = f"Bearer {token}"
    if timeout is not None:
        for option in (DatabaseOptions.TIMEOUT_QUERY, DatabaseOptions.TIMEOUT_FETCH, DatabaseOptions.TIMEOUT_UPDATE):
            options[option.value] = str(float(timeout))
    for option, file in tls_files.items():
        options[option.value] = file.read_text(encoding="ascii")
    for name, value in (headers or {}).items():
        options[DatabaseOptions.RPC_CALL_HEADER_PREFIX.value + name.lower()] = value
    return uri, options


def _scheme(uri: str) -> str:
    """The scheme of an address that is complete.

    The driver takes any text for an address and fails later, with words that do not name it.
    """
    parts = urlsplit(uri)
    try:
        is_complete = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:  # a port that is not a number
        is_complete = False
    if not is_complete:
        raise InvalidArgumentError(f'"{uri}" is not grpc://HOST:PORT or grpc+tls://HOST:PORT')
    return parts.scheme
