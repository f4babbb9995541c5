use super::super::column::Column;
use super::constraints::{ListedConstraint, constraints};
use super::table::{InformationTable, Listed};

pub(super) struct TableConstraints;

impl InformationTable for TableConstraints {
    type Row = ListedConstraint;

    const NAME: &'static str = "table_constraints";

    const COLUMNS: &'static [Column<ListedConstraint>] = &[
        Column::text("constraint_catalog", |it| it.catalog.clone()),
        Column::text("constraint_schema", |it| it.schema.clone()),
        Column::text("constraint_name", |it| it.name.clone()),
        Column::text("table_catalog", |it| it.catalog.clone()),
        Column::text("table_schema", |it| it.schema.clone()),
        Column::text("table_name", |it| it.table.clone()),
        Column::text("constraint_type", |it| it.kind_name().to_owned()),
        Column::text("is_deferrable", |_| "NO".to_owned()),
        Column::text("initially_deferred", |_| "NO".to_owned()),
        Column::text("enforced", |it| {
            if it.is_enforced() { "YES" } else { "NO" }.to_owned()
        }),
    ];

    fn rows(listed: &Listed) -> Vec<ListedConstraint> {
        constraints(&listed.tables)
    }
}
