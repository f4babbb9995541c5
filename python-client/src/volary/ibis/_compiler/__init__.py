"""Compiles expressions of Ibis to SQL of Volary.

It is Ibis' compiler for DataFusion with other rules where that compiler calls functions of its own, which Ibis' backend
for DataFusion defines in Python, or where its SQL is refused or has other results. Each module has the rules of one
kind of operations.
"""

from ._volary import VolaryCompiler

__all__ = ["VolaryCompiler", "compiler"]

compiler = VolaryCompiler()
