"""Fixtures: a cluster, and a Superset with its metadata in SQLite that has the cluster as a database."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest
from sqlalchemy import event
from sqlalchemy.engine import Engine

sys.path.append(str(Path(__file__).resolve().parents[1] / "python"))
from cluster import LocalCluster

CONFIG = """
SECRET_KEY = "a key of the tests"
SQLALCHEMY_DATABASE_URI = "sqlite:///{directory}/superset.db"
WTF_CSRF_ENABLED = False
TALISMAN_ENABLED = False
RATELIMIT_ENABLED = False
CACHE_CONFIG = DATA_CACHE_CONFIG = {{"CACHE_TYPE": "NullCache"}}
FILTER_STATE_CACHE_CONFIG = EXPLORE_FORM_DATA_CACHE_CONFIG = {{"CACHE_TYPE": "SimpleCache"}}
FEATURE_FLAGS = {{"ESTIMATE_QUERY_COST": True}}
PREVENT_UNSAFE_DB_CONNECTIONS = False
"""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory):
    with LocalCluster(tmp_path_factory.mktemp("cluster"), workers=2) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def uri(cluster):
    return cluster.uri.replace("grpc://", "volary://")


@pytest.fixture(scope="session")
def events(cluster):
    """A table with a time of each kind, in a schema of its own."""
    with cluster.connect() as connection:
        connection.sql("CREATE SCHEMA sales")
        connection.sql(
            "CREATE TABLE sales.events (id BIGINT PRIMARY KEY, kind VARCHAR, amount DECIMAL(10, 2), at TIMESTAMP, "
            "instant TIMESTAMP WITH TIME ZONE, day DATE, epoch BIGINT, tags VARCHAR[]) "
            "WITH (shard_key = 'id', shards = 8)"
        )
        connection.sql("COMMENT ON TABLE sales.events IS 'what was sold'")
        connection.sql("COMMENT ON COLUMN sales.events.amount IS 'in euros'")
        connection.sql(
            "INSERT INTO sales.events SELECT k, CASE WHEN k % 2 = 0 THEN 'even' ELSE 'odd' END, k * 1.5, "
            "CAST(instant AS TIMESTAMP), instant, CAST(instant AS DATE), 1772600767 + k * 3600, ['a', 'b'] "
            "FROM (SELECT value AS k, to_timestamp_seconds(1772600767 + value * 3600) AS instant "
            "FROM generate_series(0, 99)) AS hours"
        )
        connection.sql("CREATE VIEW sales.evens AS SELECT id, amount FROM sales.events WHERE kind = 'even'")
    return "events"


@pytest.fixture(scope="session")
def app(tmp_path_factory):
    directory = tmp_path_factory.mktemp("superset")
    config = directory / "superset_config.py"
    config.write_text(CONFIG.format(directory=directory))
    os.environ["SUPERSET_CONFIG_PATH"] = str(config)
    from superset.app import create_app

    @event.listens_for(Engine, "connect")
    def _trust_the_system(connection, record):
        # Superset commits each of its hundreds of permissions. Nothing of them must survive the tests.
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = MEMORY")

    app = create_app()
    with app.app_context():
        from superset import appbuilder, security_manager
        from superset.connectors.sqla.models import SqlaTable
        from superset.extensions import db

        # Superset's migrations would create the same tables, but take minutes.
        SqlaTable.metadata.create_all(db.engine)
        appbuilder.add_permissions(update_perms=True)
        security_manager.sync_role_definitions()
        role = security_manager.find_role("Admin")
        security_manager.add_user("admin", "Ad", "Min", "admin@example.com", role, password="admin")
    return app


@pytest.fixture
def context(app):
    """What calls of Superset's functions need. Calls over its API make their own, and must not share one."""
    with app.app_context():
        yield


@pytest.fixture
def client(app):
    """A client of Superset's API, logged in as an administrator."""
    client = app.test_client()
    answer = client.post("/api/v1/security/login", json={"username": "admin", "password": "admin", "provider": "db"})
    client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {answer.json['access_token']}"
    return client


@pytest.fixture(scope="session")
def database_id(app, uri):
    """The id of the cluster among the databases of Superset."""
    from superset.extensions import db
    from superset.models.core import Database

    with app.app_context():
        database = Database(database_name="volary", sqlalchemy_uri=uri, expose_in_sqllab=True, allow_dml=True)
        database.extra = '{"cost_estimate_enabled": true, "schemas_allowed_for_file_upload": ["sales"]}'
        db.session.add(database)
        db.session.commit()
        return database.id


@pytest.fixture
def database(context, database_id):
    """The cluster as a database of Superset."""
    from superset.extensions import db
    from superset.models.core import Database

    return db.session.get(Database, database_id)
