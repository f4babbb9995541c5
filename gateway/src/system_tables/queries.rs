use volary_flight_proto::Result;

use super::column::{Column, microseconds, timestamp};
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::statements::StatementStatus;

pub(super) struct Queries;

impl SystemTable for Queries {
    type Row = StatementStatus;

    const NAME: &'static str = "queries";

    const COLUMNS: &'static [Column<StatementStatus>] = &[
        Column::text("query_id", |status| status.id.to_string()),
        Column::text("session_id", |status| status.issuer.session.to_string()),
        Column::text("user_name", |status| status.issuer.user.clone()),
        Column::optional_text("client_address", |status| {
            status.issuer.client.map(|client| client.to_string())
        }),
        Column::optional_text("query_tag", |status| status.issuer.tag.clone()),
        Column::optional_text("trace_id", |status| status.trace_id.clone()),
        Column::text("state", |status| status.phase.name().to_owned()),
        Column::text("statement", |status| status.text.clone()),
        Column::time("started", |status| timestamp(status.started)),
        Column::optional_number("parsing_us", |status| status.parsing.map(microseconds)),
        Column::number("planning_us", |status| microseconds(status.planning)),
        Column::optional_boolean("plan_found", |status| status.plan_found),
        Column::number("queued_us", |status| microseconds(status.queued)),
        Column::number("running_us", |status| microseconds(status.running)),
        Column::optional_number("encode_us", |status| {
            status.row_times.map(|times| microseconds(times.encode))
        }),
        Column::optional_number("client_wait_us", |status| {
            status.row_times.map(|times| microseconds(times.reader))
        }),
        Column::number("sent_bytes", |status| status.sent_bytes),
        Column::number("memory_bytes", |status| status.memory_bytes),
        Column::number("workers", |status| status.work.workers),
        Column::number("workers_done", |status| status.work.workers_done),
        Column::number("shards", |status| status.work.shards),
        Column::number("scanned_rows", |status| status.work.scanned_rows),
        Column::number("scanned_bytes", |status| status.work.scanned_bytes),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<StatementStatus>> {
        Ok(sources.statements.all(&sources.rights))
    }
}
