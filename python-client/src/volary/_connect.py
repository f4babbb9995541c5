"""Opens a connection to a gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._connection import Connection
from ._target import Target


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

    Without `uri`, the address comes from the environment variable VOLARY_URI. If that is not set either, it is
    `grpc://127.0.0.1:7100`. An address with `grpc+tls://` encrypts the connection. `tls_ca` is a PEM file of the
    certificate authorities to trust; the default is the system's. `tls_certificate` and `tls_key` are PEM files with
    the certificate and the key of this client. `timeout`, in seconds, limits each statement, including the time for
    reading its rows. Without `timeout`, a statement may take any time. `headers` are sent with every call.

    Raises `InvalidArgumentError` for arguments that do not fit together, `OSError` for a file that cannot be read,
    `UnavailableError` if nobody answers at `uri`, and `UnauthenticatedError` if the credentials are wrong.
    """
    target = Target.of(
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
    return Connection(target)
