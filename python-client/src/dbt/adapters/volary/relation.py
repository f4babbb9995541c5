"""The tables and views that dbt works on."""

from __future__ import annotations

from dataclasses import dataclass, field

from dbt.adapters.base.relation import BaseRelation
from dbt.adapters.contracts.relation import RelationType


@dataclass(frozen=True, eq=False, repr=False)
class VolaryRelation(BaseRelation):
    """A table or view. Nothing can be renamed, and CREATE OR REPLACE replaces both in one step."""

    require_alias: bool = False
    """A subquery needs no alias."""
    renameable_relations: frozenset[RelationType] = field(default_factory=frozenset)
    replaceable_relations: frozenset[RelationType] = field(
        default_factory=lambda: frozenset({RelationType.Table, RelationType.View})
    )
