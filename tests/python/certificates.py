"""Makes the certificates of a cluster, and the settings that name them."""

from __future__ import annotations

import ssl
from pathlib import Path

from processes import run


class Certificates:
    """Certificates that `volary certificates` has made in a directory: an authority, and a certificate for nodes.

    `names` are arguments that say whose certificates are made. Nodes have the names of this machine by default.
    """

    def __init__(self, directory: Path, *names: str) -> None:
        self.directory = directory
        self.make(*(names or ("--host=localhost", "--host=127.0.0.1")))

    def make(self, *arguments: str) -> None:
        """Makes further certificates of the same authority."""
        ended = run("volary", "certificates", f"--dir={self.directory}", *arguments)
        assert ended.code == 0, ended.err

    def file(self, name: str) -> Path:
        return self.directory / name

    @property
    def authority(self) -> Path:
        """The certificate of the authority."""
        return self.file("authority.pem")

    def trusting(self) -> ssl.SSLContext:
        """Returns the settings of a client that trusts the authority."""
        return ssl.create_default_context(cafile=str(self.authority))

    def shown(self, section: str) -> dict[str, str]:
        """Returns the settings of a listener that shows the certificate of nodes."""
        files = {"CERTIFICATE": self.file("node.pem"), "KEY": self.file("node.key")}
        return {f"VOLARY_{section}__TLS__{name}": str(path) for name, path in files.items()}

    def of_node(self, role: str, **others: str) -> dict[str, str]:
        """Returns the settings of a node that shows its certificate and trusts the authority. `others` are further
        settings of the same section.
        """
        further = {"AUTHORITIES": str(self.authority)} | {name.upper(): value for name, value in others.items()}
        return self.shown(role) | {f"VOLARY_{role}__TLS__{name}": value for name, value in further.items()}

    def of_nodes(self) -> dict[str, str]:
        """Returns the settings of gateways and workers that show a certificate and trust the authority."""
        return self.of_node("GATEWAY") | self.of_node("WORKER")

    def of_client(self, name: str) -> dict[str, Path]:
        """Returns the arguments of `volary.connect` with which a client shows the certificate with its name."""
        return {
            "tls_ca": self.authority,
            "tls_certificate": self.file(f"{name}.pem"),
            "tls_key": self.file(f"{name}.key"),
        }
