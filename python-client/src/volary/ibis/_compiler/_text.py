"""Rules for text: search, regular expressions, URLs, hashes."""

from __future__ import annotations

from typing import Any

import ibis.common.exceptions as com
import ibis.expr.operations as ops
import sqlglot.expressions as sge

# The regular expression of RFC 3986, appendix B. Its groups are the parts of a URL.
_URL = r"^(([^:/?#]+):)?(//([^/?#]*))?([^?#]*)(\?([^#]*))?(#(.*))?$"
_SCHEME, _AUTHORITY, _PATH, _QUERY, _FRAGMENT = 2, 4, 5, 7, 9
# The user, the host and the port of an authority.
_PARTS_OF_AUTHORITY = r"^((.*)@)?(\[[^]]*\]|[^:]*)(:[0-9]*)?$"
_USER, _HOST = 2, 3

_DIGESTS = ("md5", "sha224", "sha256", "sha384", "sha512")


class Text:
    """Rules for text, as a part of the compiler."""

    __slots__ = ()

    f: Any
    if_: Any

    def visit_StringFind(self, op: Any, *, arg: Any, substr: Any, start: Any, end: Any) -> Any:
        if start is None and end is None:
            return self.f.strpos(arg, substr)
        begin = sge.convert(0) if start is None else sge.paren(start)
        part = [begin + 1] if end is None else [begin + 1, sge.paren(end) - begin]
        position = self.f.strpos(self.f.substr(arg, *part), substr)
        # A sum rather than a CASE, so that NULL stays NULL.
        return sge.paren(position + begin * self.f.sign(position))

    def visit_StringSplit(self, op: Any, *, arg: Any, delimiter: Any) -> Any:
        parts = self.f.anon.string_to_array(arg, delimiter)
        # The function makes an empty list of an empty text, while Python makes a list of one empty text.
        return self.if_(sge.paren(arg).eq(sge.convert("")), self.f.anon.make_array(""), parts)

    def visit_StringSQLLike(self, op: Any, *, arg: Any, pattern: Any, escape: Any) -> Any:
        return _escaped(sge.Like(this=arg, expression=pattern), escape)

    def visit_StringSQLILike(self, op: Any, *, arg: Any, pattern: Any, escape: Any) -> Any:
        return _escaped(sge.ILike(this=arg, expression=pattern), escape)

    def visit_RegexSearch(self, op: Any, *, arg: Any, pattern: Any) -> Any:
        return self.f.anon.regexp_like(arg, pattern)

    def visit_RegexExtract(self, op: Any, *, arg: Any, pattern: Any, index: Any) -> Any:
        # Group 0 is the whole match, which regexp_match returns only if it is a group.
        groups = self.f.anon.regexp_match(arg, self._joined("(", pattern, ")"))
        return self.f.anon.array_element(groups, sge.paren(index) + 1)

    def visit_ExtractProtocol(self, op: Any, *, arg: Any) -> Any:
        return self._part_of_url(arg, _SCHEME)

    def visit_ExtractAuthority(self, op: Any, *, arg: Any) -> Any:
        return self._part_of_url(arg, _AUTHORITY)

    def visit_ExtractUserInfo(self, op: Any, *, arg: Any) -> Any:
        return self._group(self._part_of_url(arg, _AUTHORITY), _PARTS_OF_AUTHORITY, _USER)

    def visit_ExtractHost(self, op: Any, *, arg: Any) -> Any:
        return self._group(self._part_of_url(arg, _AUTHORITY), _PARTS_OF_AUTHORITY, _HOST)

    def visit_ExtractPath(self, op: Any, *, arg: Any) -> Any:
        return self._part_of_url(arg, _PATH)

    def visit_ExtractFile(self, op: Any, *, arg: Any) -> Any:
        query = self.f.coalesce(self._joined("?", self._part_of_url(arg, _QUERY)), "")
        return self._joined(self._part_of_url(arg, _PATH), query)

    def visit_ExtractQuery(self, op: Any, *, arg: Any, key: Any) -> Any:
        query = self._part_of_url(arg, _QUERY)
        if key is None:
            return query
        # Puts a backslash before each character of the key that means something in a regular expression.
        escaped = self.f.anon.regexp_replace(key, r"([^A-Za-z0-9_])", r"\\\1", "g")
        return self._group(query, self._joined("(^|&)", escaped, "=([^&]*)"), 2)

    def visit_ExtractFragment(self, op: Any, *, arg: Any) -> Any:
        return self._part_of_url(arg, _FRAGMENT)

    def visit_HashBytes(self, op: Any, *, arg: Any, how: str) -> Any:
        return self.f.anon.digest(arg, _digest(how))

    def visit_HexDigest(self, op: Any, *, arg: Any, how: str) -> Any:
        return self.f.anon.encode(self.f.anon.digest(arg, _digest(how)), "hex")

    def visit_StringConcat(self, op: Any, *, arg: Any) -> Any:
        return self._joined(*arg)

    def _part_of_url(self, url: Any, group: int) -> Any:
        return self._group(url, _URL, group)

    def _group(self, text: Any, pattern: Any, group: int) -> Any:
        return self.f.anon.array_element(self.f.anon.regexp_match(text, pattern), group)

    @staticmethod
    def _joined(*parts: Any) -> Any:
        """Joins texts. The function concat would ignore a NULL, while the operator returns NULL."""
        joined, *rest = map(sge.convert, parts)
        for part in rest:
            joined = sge.DPipe(this=joined, expression=part)
        return sge.paren(joined)


def _escaped(like: Any, escape: Any) -> Any:
    return like if escape is None else sge.Escape(this=like, expression=sge.convert(escape))


def _digest(how: str) -> str:
    if how not in _DIGESTS:
        raise com.UnsupportedOperationError(f"Volary computes the hashes {', '.join(_DIGESTS)}, but not {how}")
    return how


UNSUPPORTED = (
    ops.RegexSplit,  # splitting at a regular expression has no function
    ops.UnwrapJSONString,
    ops.UnwrapJSONInt64,
    ops.UnwrapJSONFloat64,
    ops.UnwrapJSONBoolean,
    ops.JSONGetItem,
    ops.ToJSONArray,
    ops.ToJSONMap,
)
