"""Reads what a process answers to monitoring systems."""

from __future__ import annotations

import re
import ssl
import urllib.error
import urllib.request
from typing import NamedTuple

from processes import PATIENCE_SECONDS, until

_SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(\{.*\})? (\S+)")


class HttpAnswer(NamedTuple):
    """The status, the media type and the body of an answer."""

    status: int
    content_type: str
    body: str


class Operations:
    """The listener of a process for monitoring systems, found in what the process has printed."""

    def __init__(self, printed: str, context: ssl.SSLContext | None = None) -> None:
        found = re.search(r"^volary: metrics at (https?://\S+)/metrics$", printed, re.MULTILINE)
        assert found, printed
        self.uri = found.group(1)
        self._context = context

    def get(self, path: str, method: str = "GET", **headers: str) -> HttpAnswer:
        """Returns the answer to a request. The names of headers have underscores for hyphens."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(self.uri + path, headers=named, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS, context=self._context) as answer:
                return HttpAnswer(answer.status, answer.headers["Content-Type"], answer.read().decode())
        except urllib.error.HTTPError as error:
            return HttpAnswer(error.code, error.headers["Content-Type"], error.read().decode())

    def values(self) -> dict[str, float]:
        """Returns the value of each series, by its name with its labels."""
        answer = self.get("/metrics")
        assert answer.status == 200, answer
        samples = (_SAMPLE.fullmatch(line) for line in answer.body.splitlines() if not line.startswith("#"))
        return {f"{sample[1]}{sample[2] or ''}": float(sample[3]) for sample in samples if sample}

    def await_value(self, series: str, value: float) -> None:
        """Waits until a series has a value."""
        until(lambda: self.values().get(series) == value, f"{series} is {value}, not {self.values().get(series)}")
