"""The dbt adapter `volary`. dbt imports it for profiles with `type: volary`."""

from dbt.adapters.base import AdapterPlugin
from dbt.adapters.volary.column import VolaryColumn
from dbt.adapters.volary.connections import VolaryConnectionManager
from dbt.adapters.volary.credentials import VolaryCredentials
from dbt.adapters.volary.impl import VolaryAdapter
from dbt.adapters.volary.relation import VolaryRelation
from dbt.include import volary

__all__ = [
    "Plugin",
    "VolaryAdapter",
    "VolaryColumn",
    "VolaryConnectionManager",
    "VolaryCredentials",
    "VolaryRelation",
]

Plugin = AdapterPlugin(adapter=VolaryAdapter, credentials=VolaryCredentials, include_path=volary.PACKAGE_PATH)
