"""An Ibis backend: expressions of Ibis become SQL of Volary, and results are Arrow data.

    import ibis

    backend = ibis.volary.connect("grpc://127.0.0.1:7100")
    backend.table("orders").group_by("o_custkey").agg(spent=ibis._.o_totalprice.sum()).to_pyarrow()

Ibis finds this package by its entry point. It needs `pip install 'volary[ibis]'`.
"""

from ._backend import Backend

__all__ = ["Backend"]
