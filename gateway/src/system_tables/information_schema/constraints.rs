use volary_catalog::{Constraint, ConstraintKind};

use super::table::ListedTable;

/// A constraint, with names in place of positions.
pub(super) struct ListedConstraint {
    pub(super) catalog: String,
    pub(super) schema: String,
    pub(super) table: String,
    pub(super) name: String,
    pub(super) columns: Vec<String>,
    pub(super) kind: ConstraintKind,
}

impl ListedConstraint {
    /// Returns what information_schema calls this kind of constraint.
    pub(super) fn kind_name(&self) -> &'static str {
        match self.kind {
            ConstraintKind::PrimaryKey => "PRIMARY KEY",
            ConstraintKind::Unique => "UNIQUE",
            ConstraintKind::ForeignKey(_) => "FOREIGN KEY",
            ConstraintKind::Check { .. } => "CHECK",
        }
    }

    /// Returns whether rows that violate the constraint are refused.
    pub(super) fn is_enforced(&self) -> bool {
        matches!(self.kind, ConstraintKind::Check { enforced: true, .. })
    }
}

/// Returns the constraints of these tables.
pub(super) fn constraints(listed: &[ListedTable]) -> Vec<ListedConstraint> {
    let constraints = listed.iter().flat_map(|table| {
        let declared = table.declarations().map(|it| it.constraints.as_slice());
        let declared = declared.unwrap_or_default().iter();
        declared.map(|constraint| listed_constraint(table, constraint))
    });
    constraints.collect()
}

fn listed_constraint(table: &ListedTable, constraint: &Constraint) -> ListedConstraint {
    let schema = table.columns();
    let columns = constraint.columns.iter();
    ListedConstraint {
        catalog: table.catalog.clone(),
        schema: table.schema.clone(),
        table: table.name.clone(),
        name: constraint.name.clone(),
        columns: columns.map(|it| schema.field(*it).name().clone()).collect(),
        kind: constraint.kind.clone(),
    }
}

/// Returns the key that a foreign key refers to, if the referenced columns are declared as a key.
pub(super) fn referenced_key(
    listed: &[ListedTable],
    constraint: &ListedConstraint,
) -> Option<ListedConstraint> {
    let ConstraintKind::ForeignKey(key) = &constraint.kind else {
        return None;
    };
    let referenced = listed.iter().find(|it| {
        let name = it.table().map(|table| table.name());
        it.catalog == constraint.catalog && name == Some(&key.table)
    })?;
    let declarations = referenced.declarations()?;
    let key = declarations.key_over(&referenced.columns(), &key.columns)?;
    Some(listed_constraint(referenced, key))
}
