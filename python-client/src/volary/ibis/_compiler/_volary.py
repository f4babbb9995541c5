"""The compiler: Ibis' compiler for DataFusion, with the rules of this package first."""

from __future__ import annotations

from typing import Any, ClassVar

from ibis.backends.sql.compilers.base import FuncGen, SQLGlotCompiler
from ibis.backends.sql.compilers.datafusion import DataFusionCompiler
from ibis.backends.sql.dialects import DataFusion

from .._dialect import Volary
from .._types import VolaryType
from . import _aggregates, _lists, _text, _times, _values
from ._aggregates import Aggregates
from ._lists import Lists
from ._relations import Relations
from ._text import Text
from ._times import Times
from ._values import Values


class VolaryCompiler(Text, Times, Lists, Aggregates, Relations, Values, DataFusionCompiler):
    """Compiles expressions to SQL of Volary."""

    __slots__ = ()

    dialect = Volary
    type_mapper = VolaryType
    supports_qualify = True
    rewrites = (*_times.REWRITES, *SQLGlotCompiler.rewrites)

    # Ibis defines methods for these operations in each subclass, also for those that are inherited. Those of
    # DataFusion's compiler must not hide the rules of this package.
    SIMPLE_OPS: ClassVar[dict[Any, str]] = {}
    UNSUPPORTED_OPS: ClassVar[tuple[Any, ...]] = (
        *_aggregates.UNSUPPORTED,
        *_lists.UNSUPPORTED,
        *_text.UNSUPPORTED,
        *_times.UNSUPPORTED,
        *_values.UNSUPPORTED,
    )

    def __init__(self) -> None:
        super().__init__()
        # The parser of the dialect knows no functions, because it reads what users have written. Rules call the
        # functions that the one of DataFusion knows.
        self.f = FuncGen(dialect=DataFusion, copy=self.copy_func_args)
