"""The version of the adapter, which is that of the Python client. dbt imports this module."""

from volary import __version__ as version

__all__ = ["version"]
