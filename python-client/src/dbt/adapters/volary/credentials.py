"""What a profile of dbt says about the gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from dbt.adapters.contracts.connection import Credentials
from dbt_common.exceptions import DbtRuntimeError

_CATALOG = "volary"


@dataclass
class VolaryCredentials(Credentials):
    """A target of `profiles.yml`. The fields are those of `volary.connect`, except where they are described."""

    database: str = _CATALOG
    """The catalog. There is only one."""
    schema: str = "public"
    url: str | None = None
    """`grpc://host:port` or `grpc+tls://host:port`. It stands for `host`, `port` and `tls`."""
    host: str = "127.0.0.1"
    port: int = 7100
    tls: bool = False
    """Says whether the connection is encrypted. The default is true if a file of TLS is given."""
    username: str | None = None
    password: str | None = None
    token: str | None = None
    tls_ca: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None
    timeout: float | None = None
    """Timeout of each statement, in seconds."""
    retries: int = 1
    """How often to try again if the gateway cannot be reached."""
    query_tag: str | None = "dbt"
    """The name of the statements in `system.queries` and `system.query_log`."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the session, which are SET when a connection is opened."""

    _ALIASES = {"dbname": "database", "catalog": "database", "uri": "url", "user": "username", "pass": "password"}  # noqa: RUF012

    def __post_init__(self) -> None:
        if self.database != _CATALOG:
            raise DbtRuntimeError(
                f'the only database is "{_CATALOG}", not "{self.database}": leave `database` out of the profile, '
                "and use schemas"
            )

    @property
    def type(self) -> str:
        """The name of the adapter."""
        return "volary"

    @property
    def unique_field(self) -> str:
        """What tells one user of the adapter from another one. dbt sends only a hash of it."""
        return urlsplit(self.address).hostname or self.host

    @property
    def address(self) -> str:
        """The address for `volary.connect`."""
        if self.url is not None:
            return self.url
        is_encrypted = self.tls or any((self.tls_ca, self.tls_certificate, self.tls_key))
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'grpc+tls' if is_encrypted else 'grpc'}://{host}:{self.port}"

    def _connection_keys(self) -> tuple[str, ...]:
        """Returns the fields that `dbt debug` shows, which are no secrets."""
        shown = ("url",) if self.url is not None else ("host", "port", "tls")
        return (
            *shown,
            *("username", "database", "schema", "tls_ca", "tls_certificate", "tls_key"),
            *("timeout", "retries", "query_tag", "settings"),
        )
