use volary_catalog::ConstraintKind;

use super::super::column::Column;
use super::constraints::{ListedConstraint, constraints, referenced_key};
use super::table::{InformationTable, Listed, ListedTable};

pub(super) struct KeyColumnUsage;

/// A column of a key.
pub(super) struct KeyColumn {
    catalog: String,
    schema: String,
    table: String,
    key: String,
    column: String,
    /// Position of the column in the key. The first one is 1.
    position: u64,
    /// Position of the referenced column in the referenced key.
    referenced_position: Option<u64>,
}

impl InformationTable for KeyColumnUsage {
    type Row = KeyColumn;

    const NAME: &'static str = "key_column_usage";

    const COLUMNS: &'static [Column<KeyColumn>] = &[
        Column::text("constraint_catalog", |it| it.catalog.clone()),
        Column::text("constraint_schema", |it| it.schema.clone()),
        Column::text("constraint_name", |it| it.key.clone()),
        Column::text("table_catalog", |it| it.catalog.clone()),
        Column::text("table_schema", |it| it.schema.clone()),
        Column::text("table_name", |it| it.table.clone()),
        Column::text("column_name", |it| it.column.clone()),
        Column::number("ordinal_position", |it| it.position),
        Column::optional_number("position_in_unique_constraint", |it| it.referenced_position),
    ];

    fn rows(listed: &Listed) -> Vec<KeyColumn> {
        let all = constraints(&listed.tables);
        let keys = all
            .iter()
            .filter(|it| !matches!(it.kind, ConstraintKind::Check { .. }));
        let tables = &listed.tables;
        keys.flat_map(|key| key_columns(tables, key)).collect()
    }
}

fn key_columns(listed: &[ListedTable], key: &ListedConstraint) -> Vec<KeyColumn> {
    let referenced = referenced_key(listed, key);
    let columns = (1..).zip(&key.columns).map(|(position, column)| KeyColumn {
        catalog: key.catalog.clone(),
        schema: key.schema.clone(),
        table: key.table.clone(),
        key: key.name.clone(),
        column: column.clone(),
        position,
        referenced_position: referenced
            .as_ref()
            .and_then(|it| referenced_position(key, it, position)),
    });
    columns.collect()
}

fn referenced_position(
    key: &ListedConstraint,
    referenced: &ListedConstraint,
    position: u64,
) -> Option<u64> {
    let ConstraintKind::ForeignKey(foreign) = &key.kind else {
        return None;
    };
    let index = usize::try_from(position).ok()?.checked_sub(1)?;
    let column = foreign.columns.get(index)?;
    let at = referenced.columns.iter().position(|it| it == column)?;
    Some(u64::try_from(at).ok()?.saturating_add(1))
}
