use super::super::column::Column;
use super::table::{InformationTable, Listed};

pub(super) struct Views;

/// A view that a user has created.
pub(super) struct NamedView {
    catalog: String,
    schema: String,
    name: String,
    definition: String,
}

impl InformationTable for Views {
    type Row = NamedView;

    const NAME: &'static str = "views";

    const COLUMNS: &'static [Column<NamedView>] = &[
        Column::text("table_catalog", |it| it.catalog.clone()),
        Column::text("table_schema", |it| it.schema.clone()),
        Column::text("table_name", |it| it.name.clone()),
        Column::text("view_definition", |it| it.definition.clone()),
        Column::text("check_option", |_| "NONE".to_owned()),
        Column::text("is_updatable", |_| "NO".to_owned()),
        Column::text("insertable_into", |_| "NO".to_owned()),
        // DataFusion plans SHOW CREATE TABLE as a query of this column.
        Column::text("definition", |it| it.definition.clone()),
    ];

    fn rows(listed: &Listed) -> Vec<NamedView> {
        let views = listed.tables.iter().filter_map(|table| {
            Some(NamedView {
                catalog: table.catalog.clone(),
                schema: table.schema.clone(),
                name: table.name.clone(),
                definition: table.view_definition()?.to_owned(),
            })
        });
        views.collect()
    }
}
