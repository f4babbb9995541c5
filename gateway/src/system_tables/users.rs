//! Administrators see all users and roles. Other users see themselves and their roles.

use std::sync::Arc;

use volary_catalog::access::PrincipalRecord;
use volary_flight_proto::Result;

use super::column::{Column, timestamp_from_ms};
use super::sources::SystemTableSources;
use super::table::SystemTable;

pub(super) struct Users;

impl SystemTable for Users {
    type Row = Arc<PrincipalRecord>;

    const NAME: &'static str = "users";

    const COLUMNS: &'static [Column<Arc<PrincipalRecord>>] = &[
        Column::text("name", |principal| principal.name.clone()),
        Column::text("kind", |principal| principal.kind.name().to_owned()),
        Column::boolean("admin", |principal| principal.admin),
        Column::boolean("has_password", |principal| principal.password.is_some()),
        Column::optional_text("roles", |principal| {
            let roles: Vec<_> = principal.member_of.iter().map(String::as_str).collect();
            (!roles.is_empty()).then(|| roles.join(", "))
        }),
        Column::optional_number("max_queries", |principal| principal.limits.max_queries),
        Column::optional_number("query_memory_bytes", |principal| {
            principal.limits.query_memory
        }),
        Column::time("created", |principal| {
            timestamp_from_ms(principal.created_at_ms)
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Arc<PrincipalRecord>>> {
        Ok(sources.principals().cloned().collect())
    }
}
