"""The address of a gateway and what is sent to it. Checks and reads the arguments of `connect`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from .errors import InvalidArgumentError

DEFAULT_URI = "grpc://127.0.0.1:7100"
URI_VARIABLE = "VOLARY_URI"

_TLS_SCHEME = "grpc+tls"
_SCHEMES = ("grpc", "grpc+tcp", _TLS_SCHEME)


@dataclass(frozen=True)
class Target:
    """A gateway, and what is sent to it with every call."""

    uri: str
    username: str | None
    password: str | None = field(repr=False)
    token: str | None = field(repr=False)
    timeout: float | None
    """Timeout of each statement, in seconds."""
    tls_ca: str | None = field(repr=False)
    """The certificate authorities to trust, as PEM."""
    tls_certificate: str | None = field(repr=False)
    """The certificate of this client, as PEM."""
    tls_key: str | None = field(repr=False)
    """The key of the client's certificate, as PEM."""
    headers: dict[str, str] = field(repr=False)

    @classmethod
    def of(
        cls,
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
    ) -> Target:
        """Creates a target from the arguments of `connect`. Raises `InvalidArgumentError` and `OSError` as `connect`
        does.
        """
        uri = uri or os.environ.get(URI_VARIABLE) or DEFAULT_URI
        files = (tls_ca, tls_certificate, tls_key)
        if _scheme(uri) != _TLS_SCHEME and any(file is not None for file in files):
            raise InvalidArgumentError(f'TLS files were given, but "{uri}" is not encrypted: write {_TLS_SCHEME}://')
        if token is not None and username is not None:
            raise InvalidArgumentError("give either a token or a username and password, not both")
        if password is not None and username is None:
            raise InvalidArgumentError("a password was given without a username")
        if (tls_certificate is None) != (tls_key is None):
            raise InvalidArgumentError("the certificate of a client needs both tls_certificate and tls_key")
        ca, certificate, key = (None if file is None else Path(file).read_text(encoding="ascii") for file in files)
        return cls(
            uri=uri,
            username=username,
            password=password,
            token=token,
            timeout=None if timeout is None else float(timeout),
            tls_ca=ca,
            tls_certificate=certificate,
            tls_key=key,
            headers={name.lower(): value for name, value in (headers or {}).items()},
        )

    @property
    def is_encrypted(self) -> bool:
        """Says whether the connection is encrypted."""
        return _scheme(self.uri) == _TLS_SCHEME


def _scheme(uri: str) -> str:
    """Returns the scheme of an address. Refuses an incomplete address.

    Drivers accept any text as an address and fail later, with messages that do not name it.
    """
    parts = urlsplit(uri)
    try:
        is_complete = parts.scheme in _SCHEMES and bool(parts.hostname) and parts.port is not None
    except ValueError:  # a port that is not a number
        is_complete = False
    if not is_complete:
        raise InvalidArgumentError(f'"{uri}" is not grpc://HOST:PORT or grpc+tls://HOST:PORT')
    return parts.scheme
