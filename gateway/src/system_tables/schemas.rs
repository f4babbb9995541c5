use volary_flight_proto::Result;

use super::column::{Column, timestamp_from_ms};
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::sql::names::PUBLIC;

pub(super) struct Schemas;

/// A schema of users' tables. The schema `public` has neither an owner nor a time of creation.
pub(super) struct Schema {
    name: String,
    owner: Option<String>,
    created_at_ms: Option<i64>,
    comment: Option<String>,
}

impl SystemTable for Schemas {
    type Row = Schema;

    const NAME: &'static str = "schemas";

    const COLUMNS: &'static [Column<Schema>] = &[
        Column::text("name", |schema| schema.name.clone()),
        Column::optional_text("owner", |schema| schema.owner.clone()),
        Column::optional_time("created_at", |schema| {
            schema.created_at_ms.map(timestamp_from_ms)
        }),
        Column::optional_text("comment", |schema| schema.comment.clone()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Schema>> {
        let (catalog, rights) = (&sources.catalog, &sources.rights);
        let created = catalog.schemas();
        let created = created.filter(|schema| catalog.may_see_schema(&schema.name, rights));
        let public = Schema {
            name: PUBLIC.to_owned(),
            owner: None,
            created_at_ms: None,
            comment: None,
        };
        let created = created.map(|schema| Schema {
            name: schema.name.clone(),
            owner: schema.owner.clone(),
            created_at_ms: Some(schema.created_at_ms),
            comment: schema.comment.clone(),
        });
        Ok(std::iter::once(public).chain(created).collect())
    }
}
