"""The engine spec with which Apache Superset uses Volary.

Superset finds it by the entry point `superset.db_engine_specs`. Only Superset should import this package, because it
imports Superset.
"""

from ._spec import VolaryEngineSpec

__all__ = ["VolaryEngineSpec"]
