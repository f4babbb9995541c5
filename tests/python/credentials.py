"""The headers that refused callers send, each refused for a different reason."""

from __future__ import annotations

from pathlib import Path

from processes import until
from raw_flight import OK, action, basic, bearer
from seals import Purpose
from secured import PASSWORD, TABLE, Secured

SHORT_SESSIONS = {"VOLARY_GATEWAY__SECURITY__TOKEN_LIFETIME": "4s"}
"""The setting that makes session tokens expire during a test. A session that is not used within this time ends."""

STRANGERS = [
    "nothing",
    "a header of nothing",
    "another scheme",
    "a name that cannot be read",
    "a name that nobody has",
    "a wrong password",
    "no password",
    "the name of a role",
    "the password from before it was changed",
    "the password of a dropped user",
    "a bearer of nothing",
    "a bearer that is none",
    "a token that nobody made",
    "a token that was dropped",
    "a token that has expired",
    "a token of a dropped user",
    "a token of another cluster",
    "a token altered by one bit",
    "a session's token of another cluster",
    "a session's token altered by one bit",
    "a session's token cut short",
    "a session's token that has expired",
    "a session's token that was rotated",
    "a session's token from before the password was changed",
    "a session's token of a dropped user",
    "a session's token of a dropped user whose name another one has",
    "a session's token that was closed",
    "a session's token that a worker's secret has sealed",
]

_NEW_PASSWORD = f"{PASSWORD}, another"


class Rotating:
    """A session that is kept alive, with its first and its newest token. Without use, it ends after four seconds."""

    def __init__(self, cluster: Secured, user: str) -> None:
        self._cluster = cluster
        self._gateway = cluster.node(cluster.gateway.uri)
        self.first = cluster.log_in(user)
        self.newest = self.first

    def go_on(self) -> str:
        """Shows the newest token, and takes over the token of the answer if there is one."""
        answer = self._gateway.call("ListActions", b"", authorization=self.newest)
        assert answer.code == OK, answer
        self.newest = answer.headers.get("authorization", self.newest)
        self._cluster.record_header("a session that goes on", self.newest)
        return self.newest


def shown_by_strangers(cluster: Secured, directory: Path) -> dict[str, str | None]:
    """Returns the headers by their description. `directory` is for a second cluster.

    The headers are those of users who may read the table, or who might be mistaken for such a user.
    """
    expiring = cluster.log_in("kea")
    users = ("changed", "dropped", "replaced", "guessed", "silent")
    for user in users:
        cluster.administer(f"CREATE USER {user} PASSWORD '{PASSWORD}'", f"GRANT SELECT ON {TABLE} TO {user}")
    cluster.administer("CREATE ROLE readers", f"GRANT SELECT ON {TABLE} TO readers")
    sessions = {user: cluster.log_in(user) for user in users[:3]}
    tokens = {name: cluster.create_token("kea", name) for name in ("dropped_token", "altered_token")}
    of_dropped = cluster.create_token("dropped", "of_dropped")
    brief = cluster.create_token("kea", "brief", "1ms")
    cluster.record("a new password", _NEW_PASSWORD)
    cluster.administer(
        f"ALTER USER changed PASSWORD '{_NEW_PASSWORD}'",
        "DROP USER dropped",
        "DROP USER replaced",
        f"CREATE USER replaced PASSWORD '{PASSWORD}'",
        f"GRANT SELECT ON {TABLE} TO replaced",
        "DROP TOKEN dropped_token",
    )
    with Secured(directory) as other:
        other.add_worker()
        other.populate()
        elsewhere = {"token": other.create_token("kea", "of_kea"), "session": other.log_in("kea")}
    claims = bytes.fromhex(expiring.removeprefix("Bearer volary-bearer-"))
    rotating = Rotating(cluster, "kea")
    closed = cluster.log_in("kea")
    with cluster.node(cluster.gateway.uri) as gateway:
        assert gateway.call("DoAction", action("CloseSession"), authorization=closed).code == OK
    forged = cluster.seal.reseal(claims, purpose=Purpose.SESSION, expiry_s=2**40)
    shown = {
        "nothing": None,
        "a header of nothing": "",
        "another scheme": "Digest kea",
        "a name that cannot be read": "Basic !",
        "a name that nobody has": basic("nobody", PASSWORD),
        "a wrong password": basic("guessed", f"{PASSWORD}!"),
        "no password": basic("silent", ""),
        "the name of a role": basic("readers", ""),
        "the password from before it was changed": basic("changed", PASSWORD),
        "the password of a dropped user": basic("dropped", PASSWORD),
        "a bearer of nothing": "Bearer ",
        "a bearer that is none": bearer(PASSWORD),
        "a token that nobody made": bearer("volary-token-" + "0" * 64),
        "a token that was dropped": tokens["dropped_token"],
        "a token that has expired": brief,
        "a token of a dropped user": of_dropped,
        "a token of another cluster": elsewhere["token"],
        "a token altered by one bit": _altered(tokens["altered_token"]),
        "a session's token of another cluster": elsewhere["session"],
        "a session's token altered by one bit": _altered(expiring),
        "a session's token cut short": expiring[:-2],
        "a session's token that has expired": expiring,
        "a session's token that was rotated": rotating.first,
        "a session's token from before the password was changed": sessions["changed"],
        "a session's token of a dropped user": sessions["dropped"],
        "a session's token of a dropped user whose name another one has": sessions["replaced"],
        "a session's token that was closed": closed,
        "a session's token that a worker's secret has sealed": bearer("volary-bearer-" + forged.hex()),
    }
    assert list(shown) == STRANGERS
    for what, header in shown.items():
        if header not in (None, "", "Basic !"):
            cluster.record_header(what, header)
    gateway = cluster.node(cluster.gateway.uri)

    def have_expired() -> bool:
        rotating.go_on()
        answers = [gateway.call("ListActions", b"", authorization=token) for token in (expiring, rotating.first)]
        return all("has expired" in answer.text for answer in answers)

    until(have_expired, "the sessions' tokens have expired")
    return shown


def forget_failures(cluster: Secured) -> None:
    """Resets the count of failed logins, so that the next wrong password is not refused because of the earlier ones."""
    with cluster.node(cluster.gateway.uri) as gateway:
        assert gateway.call("ListActions", b"", authorization=basic("guessed", PASSWORD)).code == OK


def _altered(header: str) -> str:
    """Returns the header with one bit changed in its last character, which is a hexadecimal digit."""
    return header[:-1] + format(int(header[-1], 16) ^ 1, "x")
