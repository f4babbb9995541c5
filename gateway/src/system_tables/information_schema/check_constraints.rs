use volary_catalog::ConstraintKind;

use super::super::column::Column;
use super::constraints::constraints;
use super::table::{InformationTable, Listed};

pub(super) struct CheckConstraints;

/// A check and its condition.
pub(super) struct ListedCheck {
    catalog: String,
    schema: String,
    name: String,
    condition: String,
}

impl InformationTable for CheckConstraints {
    type Row = ListedCheck;

    const NAME: &'static str = "check_constraints";

    const COLUMNS: &'static [Column<ListedCheck>] = &[
        Column::text("constraint_catalog", |it| it.catalog.clone()),
        Column::text("constraint_schema", |it| it.schema.clone()),
        Column::text("constraint_name", |it| it.name.clone()),
        Column::text("check_clause", |it| it.condition.clone()),
    ];

    fn rows(listed: &Listed) -> Vec<ListedCheck> {
        let checks = constraints(&listed.tables)
            .into_iter()
            .filter_map(|constraint| match constraint.kind {
                ConstraintKind::Check { condition, .. } => Some(ListedCheck {
                    catalog: constraint.catalog,
                    schema: constraint.schema,
                    name: constraint.name,
                    condition,
                }),
                _ => None,
            });
        checks.collect()
    }
}
