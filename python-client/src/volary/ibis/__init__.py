"""An Ibis backend: expressions of Ibis become SQL of Volary, and results are Arrow data.

    import ibis

    backend = ibis.volary.connect("grpc://127.0.0.1:7100")
    backend.table("orders").group_by("o_custkey").agg(spent=ibis._.o_totalprice.sum()).to_pyarrow()

Ibis finds this package by its entry point. It needs `pip install 'volary[ibis]'`.
"""

from ibis.backends.sql import compilers

from . import _compiler
from ._backend import Backend

# `ibis.to_sql(…, dialect="volary")` looks there for compilers.
compilers.volary = _compiler

__all__ = ["Backend"]
