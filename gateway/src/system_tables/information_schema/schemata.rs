use super::super::column::Column;
use super::table::{InformationTable, Listed};

pub(super) struct Schemata;

/// A schema.
pub(super) struct NamedSchema {
    catalog: String,
    name: String,
    owner: Option<String>,
    comment: Option<String>,
}

impl InformationTable for Schemata {
    type Row = NamedSchema;

    const NAME: &'static str = "schemata";

    const COLUMNS: &'static [Column<NamedSchema>] = &[
        Column::text("catalog_name", |it| it.catalog.clone()),
        Column::text("schema_name", |it| it.name.clone()),
        Column::optional_text("schema_owner", |it| it.owner.clone()),
        Column::optional_text("default_character_set_catalog", |_| None),
        Column::optional_text("default_character_set_schema", |_| None),
        Column::optional_text("default_character_set_name", |_| None),
        Column::optional_text("sql_path", |_| None),
        Column::optional_text("comment", |it| it.comment.clone()),
    ];

    fn rows(listed: &Listed) -> Vec<NamedSchema> {
        let schemas = listed.schemas.iter().map(|schema| NamedSchema {
            catalog: schema.catalog.clone(),
            name: schema.name.clone(),
            owner: schema.owner.clone(),
            comment: schema.comment.clone(),
        });
        schemas.collect()
    }
}
