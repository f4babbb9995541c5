"""How a program begins."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ._connection import Connection
from ._target import Target
from .errors import UnavailableError


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
    files of this client's own certificate. `timeout`, in seconds, bounds each statement, the reading of its rows
    included; without one a query may take as long as it needs. `headers` go with every call.

    Raises `InvalidArgumentError` for arguments that do not fit together, `OSError` for a file that cannot be read,
    `UnavailableError` if nobody answers at `uri`, `UnauthenticatedError` if the credentials are wrong.
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
    try:
        return Connection(target)
    except UnavailableError as error:
        raise UnavailableError(f"no gateway answers at {target.uri}: {error.message}") from error
