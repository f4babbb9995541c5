"""The engine spec: how Superset connects to Volary, asks it and reads its answers."""

from __future__ import annotations

import re
from datetime import datetime
from functools import lru_cache
from typing import Any
from uuid import uuid4

import pyarrow as pa
from marshmallow import Schema, fields
from marshmallow.validate import Range
from sqlalchemy import types as sqltypes
from sqlalchemy.engine import URL
from superset.db_engine_specs.base import BaseEngineSpec, BasicParametersMixin, DatabaseCategory
from superset.errors import ErrorLevel, SupersetError, SupersetErrorType
from superset.exceptions import SupersetException
from superset.sql.parse import SQLGLOT_DIALECTS, Table
from superset.utils.core import GenericDataType

from ..dbapi import Error
from ..errors import ErrorCode
from ..sqlalchemy import VolaryDialect
from ..sqlalchemy._column_types import column_type
from ._cost import described, estimate
from ._errors import BY_SQLSTATE, BY_TEXT, sqlstate
from ._sqlglot import Volary
from ._time import EPOCH, EPOCH_MS, GRAINS, literal

SQLGLOT_DIALECTS["volary"] = Volary


class VolaryParametersSchema(Schema):
    """What the form for a new database asks for. There is one catalog, so it asks for no database."""

    username = fields.String(allow_none=True, metadata={"description": "Username"})
    password = fields.String(allow_none=True, metadata={"description": "Password"})
    host = fields.String(required=True, metadata={"description": "Hostname or IP address of a gateway"})
    port = fields.Integer(
        required=True,
        metadata={"description": "Port of the gateway, 7100 by default"},
        validate=Range(min=0, max=2**16, max_inclusive=False),
    )
    query = fields.Dict(
        keys=fields.Str(),
        values=fields.Raw(),
        metadata={"description": "Additional parameters: schema, tls_ca, tls_certificate, tls_key, token, timeout"},
    )
    encryption = fields.Boolean(metadata={"description": "Use an encrypted connection to the gateway"})
    ssh = fields.Boolean(metadata={"description": "Use an ssh tunnel connection to the gateway"})


class VolaryEngineSpec(BasicParametersMixin, BaseEngineSpec):
    """Volary, over the dialect `volary.sqlalchemy`."""

    engine = "volary"
    engine_name = "Volary"
    default_driver = "flight"
    drivers = {"flight": "The driver of the package volary"}  # noqa: RUF012  # as Superset declares it
    sqlalchemy_uri_placeholder = "volary://user:password@host:7100[?schema=name&tls=true]"
    encryption_parameters = {"tls": "true"}  # noqa: RUF012
    parameters_schema = VolaryParametersSchema()
    metadata = {  # noqa: RUF012
        "description": "Volary is a federated SQL service over sharded Arrow tables.",
        "categories": [DatabaseCategory.ANALYTICAL_DATABASES, DatabaseCategory.OPEN_SOURCE],
        "pypi_packages": ["volary[sqlalchemy]"],
        "connection_string": "volary://{username}:{password}@{host}:{port}",
        "default_port": 7100,
        "parameters": {
            "username": "Name of a user of the cluster",
            "password": "Password of the user",
            "host": "Host of a gateway",
            "port": "Default 7100",
        },
        "connection_examples": [
            {
                "description": "With TLS",
                "connection_string": "volary://{username}:{password}@{host}:{port}?tls=true&tls_ca=ca.pem",
            }
        ],
    }

    supports_dynamic_schema = True
    supports_multivalues_insert = True
    # `SELECT id AS at, max(at) … ORDER BY max(at)` is refused: `at` would be both.
    allows_alias_to_source_column = False
    custom_errors = BY_TEXT
    _time_grain_expressions = GRAINS
    column_type_mappings = (
        # Lists begin with the type of their items.
        (re.compile(r".*\[\]$", re.DOTALL), sqltypes.String(), GenericDataType.STRING),
        (re.compile(r"^(STRUCT|MAP)\b", re.IGNORECASE), sqltypes.String(), GenericDataType.STRING),
        (re.compile(r"^BYTEA", re.IGNORECASE), sqltypes.LargeBinary(), GenericDataType.STRING),
        (re.compile(r"^TINYINT", re.IGNORECASE), sqltypes.SmallInteger(), GenericDataType.NUMERIC),
        (
            re.compile(r"^TIMESTAMP.*WITH TIME ZONE", re.IGNORECASE),
            sqltypes.TIMESTAMP(timezone=True),
            GenericDataType.TEMPORAL,
        ),
    )

    # Connections

    @classmethod
    def build_sqlalchemy_uri(cls, parameters: dict[str, Any], encrypted_extra: dict[str, str] | None = None) -> str:
        """Returns the URI for what was filled into the form."""
        query = dict(parameters.get("query") or {})
        if parameters.get("encryption"):
            query.update(cls.encryption_parameters)
        url = URL.create(
            cls.engine,
            username=parameters.get("username") or None,
            password=parameters.get("password") or None,
            host=parameters["host"],
            port=parameters["port"],
            query=query,
        )
        return str(url.render_as_string(hide_password=False))

    @classmethod
    def validate_parameters(cls, properties: dict[str, Any]) -> list[SupersetError]:
        """Returns what is wrong with the form. A cluster without users takes any name, so none is required."""
        parameters = properties.get("parameters", {})
        required = {"username": "none", "database": "volary"}
        filled = {**required, **{name: value for name, value in parameters.items() if value}}
        errors: list[SupersetError] = super().validate_parameters({**properties, "parameters": filled})
        return errors

    @classmethod
    def adjust_engine_params(
        cls,
        uri: URL,
        connect_args: dict[str, Any],
        catalog: str | None = None,
        schema: str | None = None,
    ) -> tuple[URL, dict[str, Any]]:
        """Makes the schema that was chosen in SQL Lab the current one."""
        if schema:
            uri = uri.update_query_dict({"schema": schema})
        return uri, {**connect_args}

    @classmethod
    def get_schema_from_engine_params(cls, sqlalchemy_uri: URL, connect_args: dict[str, Any]) -> str | None:
        """Returns the schema that the URI names."""
        schema = sqlalchemy_uri.query.get("schema")
        return None if schema is None else str(schema)

    @classmethod
    def impersonate_user(
        cls,
        database: Any,
        username: str | None,
        user_token: str | None,
        url: URL,
        engine_kwargs: dict[str, Any],
    ) -> tuple[URL, dict[str, Any]]:
        """Refuses to connect. Without this, Superset would log in with a user's name and another one's password."""
        raise SupersetException(
            "Volary has no impersonation: switch off 'Impersonate logged in user' for this database, or add a "
            "database for each group of users, with a user of the cluster of its own."
        )

    # Times

    @classmethod
    def epoch_to_dttm(cls) -> str:
        """Returns the expression that makes a time of seconds since 1970."""
        return EPOCH

    @classmethod
    def epoch_ms_to_dttm(cls) -> str:
        """Returns the expression that makes a time of milliseconds since 1970."""
        return EPOCH_MS

    @classmethod
    def convert_dttm(cls, target_type: str, dttm: datetime, db_extra: dict[str, Any] | None = None) -> str | None:
        """Returns a time as a literal of a type, with which a column of that type is compared."""
        return literal(cls.get_sqla_column_type(target_type), dttm)

    # Results

    @classmethod
    def get_datatype(cls, type_code: Any) -> str | None:
        """Returns the name of a type of the cursor's description."""
        if isinstance(type_code, pa.DataType):
            return _type_name(type_code)
        name: str | None = super().get_datatype(type_code)
        return name

    @classmethod
    def fetch_data(cls, cursor: Any, limit: int | None = None) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement. Statements such as SET have none."""
        if not cursor.description:
            return []
        rows: list[tuple[Any, ...]] = super().fetch_data(cursor, limit)
        return rows

    @classmethod
    def get_function_names(cls, database: Any) -> list[str]:
        """Returns the names of functions, which SQL Lab proposes."""
        names = database.get_df("SELECT DISTINCT routine_name FROM information_schema.routines ORDER BY routine_name")
        return [str(name) for name in names["routine_name"]]

    @classmethod
    def df_to_sql(cls, database: Any, table: Table, df: Any, to_sql_kwargs: dict[str, Any]) -> None:
        """Writes an uploaded file into a table, in one write: all rows are kept, or none.

        Raises `ValueError` only if the table exists, and must not.
        """
        if to_sql_kwargs.get("index"):
            df = df.reset_index(names=to_sql_kwargs.get("index_label"))
        modes = {"fail": "create", "replace": "replace", "append": "create_append"}
        try:
            rows = pa.Table.from_pandas(df, preserve_index=False).replace_schema_metadata(None)
        except pa.ArrowInvalid as error:
            # It is a ValueError, which Superset takes to mean that the table exists.
            raise SupersetException(f"The rows cannot be written: {error}") from error
        with (
            cls.get_engine(database, catalog=table.catalog, schema=table.schema) as engine,
            engine.connect() as connection,
            connection.connection.dbapi_connection.cursor() as cursor,
        ):
            try:
                mode = modes[to_sql_kwargs.get("if_exists", "fail")]
                cursor.adbc_ingest(table.table, rows, mode=mode, db_schema_name=table.schema or None)
            except Error as error:
                if error.code is ErrorCode.ALREADY_EXISTS:
                    # What pandas raises, and Superset knows.
                    raise ValueError(f"Table '{table.table}' already exists.") from error
                raise

    # Errors

    @classmethod
    def extract_errors(
        cls, ex: Exception, context: dict[str, Any] | None = None, database_name: str | None = None
    ) -> list[SupersetError]:
        """Returns what is wrong, with Superset's kind of error where there is one."""
        errors: list[SupersetError] = super().extract_errors(ex, context, database_name)
        kind = BY_SQLSTATE.get(sqlstate(ex) or "")
        if kind is None or errors[0].error_type is not SupersetErrorType.GENERIC_DB_ENGINE_ERROR:
            return errors
        extra = {"engine_name": cls.engine_name}
        return [SupersetError(cls._extract_error_message(ex), kind, ErrorLevel.ERROR, extra)]

    # Costs

    @classmethod
    def get_allow_cost_estimate(cls, extra: dict[str, Any]) -> bool:
        """Returns that costs can be estimated."""
        return True

    @classmethod
    def estimate_statement_cost(cls, database: Any, statement: str, cursor: Any) -> dict[str, Any]:
        """Returns what the plan of the query says about its costs."""
        return estimate(cursor, statement)

    @classmethod
    def query_cost_formatter(cls, raw_cost: list[dict[str, Any]]) -> list[dict[str, str]]:
        """Returns costs as they are shown."""
        return [described(cost) for cost in raw_cost]

    # Cancelling

    @classmethod
    def get_cancel_query_id(cls, cursor: Any, query: Any) -> str | None:
        """Returns the id of the session, because the queries that it is going to run have no ids yet."""
        # The statement finds itself by a mark in its text, which no other statement has.
        mark = str(uuid4())
        cursor.execute(f"SELECT session_id FROM system.queries WHERE statement LIKE '%{mark}%'")
        # All rows are read, so that this statement has ended when the session's queries are listed.
        rows = cursor.fetchall()
        return None if not rows or rows[0][0] is None else str(rows[0][0])

    @classmethod
    def cancel_query(cls, cursor: Any, query: Any, cancel_query_id: str) -> bool:
        """Ends what the session runs on the gateway. Returns whether it ran anything."""
        cursor.execute("SELECT query_id FROM system.queries WHERE session_id = ?", (cancel_query_id,))
        running = [str(query_id) for (query_id,) in cursor.fetchall()]
        for query_id in running:
            try:
                cursor.execute(f"KILL QUERY '{query_id}'")
            except Error as error:
                # It has ended by itself in the meantime.
                if error.code is not ErrorCode.NOT_FOUND:
                    raise
        return bool(running)


@lru_cache(maxsize=1024)
def _type_name(arrow: pa.DataType) -> str:
    return str(column_type(arrow).compile(dialect=VolaryDialect())).upper()
