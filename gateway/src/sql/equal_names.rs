//! DataFusion 55 compares the qualifiers of columns only as far as both are written: `t.k` and
//! `s.t.k` count as the same column. In a FROM of `t` and `s.t`, both would be the column of the
//! table that comes first.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use datafusion::sql::sqlparser::ast::{ObjectName, Select, TableFactor, TableWithJoins};
use volary_flight_proto::{Error, Result, SqlState};

use super::names::identifier;

/// Refuses a SELECT whose FROM has two tables of equal names, if one of them is written with its
/// schema. The planner itself refuses two that are written in the same way.
///
/// # Errors
/// `INVALID_ARGUMENT` with both names.
pub(super) fn check(select: &Select) -> Result<()> {
    let mut relations = Vec::new();
    add_relations(&select.from, &mut relations);
    let mut by_name: HashMap<String, NamedRelation> = HashMap::new();
    for relation in relations {
        match by_name.entry(relation.name.clone()) {
            Entry::Vacant(entry) => _ = entry.insert(relation),
            Entry::Occupied(entry) => {
                let other = entry.get();
                if relation.has_schema || other.has_schema {
                    return Err(Error::invalid(format!(
                        "{} and {} have the same name in one FROM; give one of them another name: {} AS other",
                        other.written, relation.written, relation.written
                    ))
                    .with_sqlstate(SqlState::AmbiguousColumn));
                }
            }
        }
    }
    Ok(())
}

/// A relation of a FROM, with the name by which columns are qualified.
struct NamedRelation {
    name: String,
    written: String,
    has_schema: bool,
}

fn add_relations(from: &[TableWithJoins], named: &mut Vec<NamedRelation>) {
    for item in from {
        let joined = item.joins.iter().map(|join| &join.relation);
        for factor in std::iter::once(&item.relation).chain(joined) {
            match factor {
                TableFactor::NestedJoin {
                    table_with_joins,
                    alias: None,
                } => add_relations(std::slice::from_ref(table_with_joins), named),
                factor => named.extend(named_relation(factor)),
            }
        }
    }
}

fn named_relation(factor: &TableFactor) -> Option<NamedRelation> {
    let alias = match factor {
        TableFactor::Table { alias, .. }
        | TableFactor::Derived { alias, .. }
        | TableFactor::TableFunction { alias, .. }
        | TableFactor::Function { alias, .. }
        | TableFactor::UNNEST { alias, .. }
        | TableFactor::NestedJoin { alias, .. } => alias.as_ref(),
        _ => None,
    };
    match (alias, factor) {
        (Some(alias), _) => Some(NamedRelation {
            name: identifier(&alias.name),
            written: alias.name.to_string(),
            has_schema: false,
        }),
        (None, TableFactor::Table { name, .. }) => {
            let ObjectName(parts) = name;
            Some(NamedRelation {
                name: identifier(parts.last()?.as_ident()?),
                written: name.to_string(),
                has_schema: parts.len() > 1,
            })
        }
        _ => None,
    }
}
