use std::sync::Arc;

use volary_catalog::{View, format_parameters};
use volary_flight_proto::Result;

use super::column::{Column, timestamp_from_ms};
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct SavedQueries;

impl SystemTable for SavedQueries {
    type Row = Arc<View>;

    const NAME: &'static str = "saved_queries";

    const COLUMNS: &'static [Column<Arc<View>>] = &[
        Column::text("name", |query| query.name().name().to_owned()),
        Column::optional_text("parameters", |query| {
            let parameters = query.parameters().unwrap_or_default();
            (!parameters.is_empty()).then(|| format_parameters(parameters))
        }),
        Column::text("definition", |query| query.sql().to_owned()),
        Column::optional_text("owner", |query| query.owner().map(str::to_owned)),
        Column::time("created_at", |query| {
            timestamp_from_ms(query.created_at_ms())
        }),
        Column::text("schema_name", |query| query.name().schema().to_owned()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Arc<View>>> {
        let queries = sources.catalog.views().filter(|view| view.is_saved_query());
        let seen = queries.filter(|query| sources.rights.may_see(query.name(), query.owner()));
        Ok(seen.cloned().collect())
    }
}
