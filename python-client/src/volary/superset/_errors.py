"""What Superset says about errors of Volary."""

from __future__ import annotations

import re
from typing import Any, TypeAlias

from flask_babel import gettext as __
from superset.errors import SupersetErrorType

Described: TypeAlias = tuple[str, SupersetErrorType, dict[str, Any]]

BY_TEXT: dict[re.Pattern[str], Described] = {
    re.compile(r'table "(?P<table>[^"]*)" does not exist'): (
        __('The table "%(table)s" does not exist. A valid table must be used to run this query.'),
        SupersetErrorType.TABLE_DOES_NOT_EXIST_ERROR,
        {},
    ),
    re.compile(r"there is no column (?P<column>.+?): (?P<hint>there are .*|did you mean .*)"): (
        __('We can\'t seem to resolve the column "%(column)s": %(hint)s'),
        SupersetErrorType.COLUMN_DOES_NOT_EXIST_ERROR,
        {},
    ),
    re.compile(r"there is no schema (?P<schema>.+?);"): (
        __('The schema "%(schema)s" does not exist. A valid schema must be used to run this query.'),
        SupersetErrorType.SCHEMA_DOES_NOT_EXIST_ERROR,
        {},
    ),
    re.compile(r"sql parser error: (?P<problem>.*)", re.DOTALL): (
        __("Please check your query for syntax errors: %(problem)s"),
        SupersetErrorType.SYNTAX_ERROR,
        {},
    ),
    re.compile("PERMISSION_DENIED: "): ("", SupersetErrorType.CONNECTION_DATABASE_PERMISSIONS_ERROR, {}),
    re.compile(r"no gateway answers at grpc(?:\+tls)?://(?P<host>.+?):\d+: .*(?:resolv|lookup|resolution)"): (
        __('The hostname "%(host)s" cannot be resolved.'),
        SupersetErrorType.CONNECTION_INVALID_HOSTNAME_ERROR,
        {"invalid": ["host"]},
    ),
    re.compile(r"no gateway answers at grpc(?:\+tls)?://(?P<host>.+?):(?P<port>\d+): .*Connection refused"): (
        __('Port %(port)s on hostname "%(host)s" refused the connection.'),
        SupersetErrorType.CONNECTION_PORT_CLOSED_ERROR,
        {"invalid": ["host", "port"]},
    ),
    re.compile(r"no gateway answers at grpc(?:\+tls)?://(?P<host>.+?):(?P<port>\d+)"): (
        __('The host "%(host)s" might be down, and can\'t be reached on port %(port)s.'),
        SupersetErrorType.CONNECTION_HOST_DOWN_ERROR,
        {"invalid": ["host", "port"]},
    ),
}
"""Errors by what their messages contain, which become parts of what is said. Without a text, the message is said."""

BY_SQLSTATE: dict[str, SupersetErrorType] = {
    "28000": SupersetErrorType.CONNECTION_ACCESS_DENIED_ERROR,
    "28P01": SupersetErrorType.CONNECTION_INVALID_PASSWORD_ERROR,
    "3D000": SupersetErrorType.CONNECTION_UNKNOWN_DATABASE_ERROR,
    "3F000": SupersetErrorType.SCHEMA_DOES_NOT_EXIST_ERROR,
    "42501": SupersetErrorType.CONNECTION_DATABASE_PERMISSIONS_ERROR,
    "42601": SupersetErrorType.SYNTAX_ERROR,
    "42703": SupersetErrorType.COLUMN_DOES_NOT_EXIST_ERROR,
    "42704": SupersetErrorType.OBJECT_DOES_NOT_EXIST_ERROR,
    "42P01": SupersetErrorType.TABLE_DOES_NOT_EXIST_ERROR,
}
"""Errors by their SQLSTATE, for which the message of the gateway says enough."""


def sqlstate(error: object) -> str | None:
    """Returns the SQLSTATE of an error of `volary.dbapi`, also if SQLAlchemy or Superset has wrapped it. Superset may
    give the text of an error, which has none.
    """
    while isinstance(error, BaseException):
        code = getattr(error, "sqlstate", None)
        if isinstance(code, str):
            return code
        error = getattr(error, "orig", None) or error.__cause__
    return None
