"""Tests the parts of the adapter that need no gateway."""

from __future__ import annotations

import pyarrow as pa
import pytest
from dbt.adapters.volary import VolaryColumn, VolaryCredentials
from dbt.adapters.volary.statements import split
from dbt.adapters.volary.types import sql_name
from dbt_common.exceptions import DbtRuntimeError


@pytest.mark.parametrize(
    ("text", "statements"),
    [
        ("select 1", ["select 1"]),
        ("select 1;", ["select 1"]),
        ("set a = 1; set b = 2;\n;", ["set a = 1", "set b = 2"]),
        ("select ';' as \"a;b\"; select 'it''s;'", ["select ';' as \"a;b\"", "select 'it''s;'"]),
        ("-- one; two\nselect 1; -- the end;", ["-- one; two\nselect 1"]),
        ("/* a; /* b; */ c; */ select 1; select 2", ["/* a; /* b; */ c; */ select 1", "select 2"]),
        ("select $$;$$, $tag$;$$;$tag$; select 2", ["select $$;$$, $tag$;$$;$tag$", "select 2"]),
        ("select 1 - 2; select 3 / 4", ["select 1 - 2", "select 3 / 4"]),
        ("select 'open; select 2", ["select 'open; select 2"]),
        ("/* open; select 2", ["/* open; select 2"]),
        ("-- nothing;", ["-- nothing;"]),
        (" ; ", [" ; "]),
    ],
)
def test_a_text_is_split_at_the_semicolons_between_its_statements(text, statements):
    assert split(text) == statements


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (pa.bool_(), "BOOLEAN"),
        (pa.int32(), "INTEGER"),
        (pa.decimal128(20, 0), "DECIMAL"),
        (pa.large_string(), "VARCHAR"),
        (pa.timestamp("us"), "TIMESTAMP"),
        (pa.timestamp("s", "Asia/Tokyo"), "TIMESTAMP WITH TIME ZONE"),
        (pa.time32("ms"), "TIME"),
        (pa.list_(pa.list_(pa.string())), "VARCHAR[][]"),
        (pa.struct([("a", pa.int64()), ("b", pa.binary())]), "STRUCT<a BIGINT, b BYTEA>"),
        (pa.map_(pa.string(), pa.int64()), "MAP<STRING, INT64>"),
    ],
)
def test_types_of_arrow_have_the_names_that_contracts_compare(kind, name):
    assert sql_name(kind) == name


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({}, "grpc://127.0.0.1:7100"),
        ({"host": "gateway.example", "port": 7200, "tls": True}, "grpc+tls://gateway.example:7200"),
        ({"host": "::1", "tls_ca": "authority.pem"}, "grpc+tls://[::1]:7100"),
        ({"url": "grpc+tls://gateway.example:7100", "host": "ignored"}, "grpc+tls://gateway.example:7100"),
    ],
)
def test_a_profile_has_an_address(fields, address):
    assert VolaryCredentials(schema="dbt", **fields).address == address


def test_a_profile_takes_the_names_of_other_adapters_and_shows_no_secret():
    written = {"schema": "dbt", "user": "kea", "pass": "secret", "uri": "grpc://a:1", "token": "secret"}
    credentials = VolaryCredentials.from_dict(VolaryCredentials.translate_aliases(written))
    assert (credentials.username, credentials.password, credentials.url) == ("kea", "secret", "grpc://a:1")
    shown = dict(credentials.connection_info())
    assert shown["url"] == "grpc://a:1"
    assert "secret" not in shown.values()


def test_another_database_is_refused():
    with pytest.raises(DbtRuntimeError, match='the only database is "volary"'):
        VolaryCredentials(schema="dbt", database="other")


def test_text_has_no_length_to_expand_to():
    short, long = VolaryColumn("a", "VARCHAR"), VolaryColumn("a", "VARCHAR", char_size=500)
    assert not short.can_expand_to(long)
    assert (short.data_type, VolaryColumn("n", "DECIMAL(10, 2)").is_numeric()) == ("VARCHAR", True)
