use volary_flight_proto::Result;
use volary_flight_proto::stage_times::StageTimes;

use super::column::{Column, microseconds, timestamp};
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::statements::{EndOutcome, EndedStatement};

pub(super) struct QueryLog;

impl SystemTable for QueryLog {
    type Row = EndedStatement;

    const NAME: &'static str = "query_log";

    const COLUMNS: &'static [Column<EndedStatement>] = &[
        Column::text("query_id", |ended| ended.status.id.to_string()),
        Column::text("session_id", |ended| {
            ended.status.issuer.session.to_string()
        }),
        Column::text("user_name", |ended| ended.status.issuer.user.clone()),
        Column::optional_text("client_address", |ended| {
            let client = ended.status.issuer.client;
            client.map(|client| client.to_string())
        }),
        Column::optional_text("query_tag", |ended| ended.status.issuer.tag.clone()),
        Column::optional_text("trace_id", |ended| ended.status.trace_id.clone()),
        Column::text("outcome", |ended| ended.outcome.name().to_owned()),
        Column::text("statement", |ended| ended.status.text.clone()),
        Column::time("started", |ended| timestamp(ended.status.started)),
        Column::optional_number("parsing_us", |ended| ended.status.parsing.map(microseconds)),
        Column::number("planning_us", |ended| microseconds(ended.status.planning)),
        Column::optional_boolean("plan_found", |ended| ended.status.plan_found),
        Column::number("queued_us", |ended| microseconds(ended.status.queued)),
        Column::number("running_us", |ended| microseconds(ended.status.running)),
        Column::optional_number("worker_queued_us", |ended| {
            stages(ended).map(|stages| stages.queued_us)
        }),
        Column::optional_number("worker_bind_us", |ended| {
            stages(ended).map(|stages| stages.bind_us)
        }),
        Column::optional_number("worker_index_us", |ended| {
            stages(ended).map(|stages| stages.index_us)
        }),
        Column::optional_number("worker_read_us", |ended| {
            stages(ended).map(|stages| stages.read_us)
        }),
        Column::optional_number("worker_compute_us", |ended| {
            stages(ended).map(|stages| stages.compute_us)
        }),
        Column::optional_number("worker_encode_us", |ended| {
            stages(ended).map(|stages| stages.encode_us)
        }),
        Column::optional_number("wire_us", |ended| {
            stages(ended).map(|stages| stages.wire_us)
        }),
        Column::optional_number("encode_us", |ended| {
            let times = ended.status.row_times;
            times.map(|times| microseconds(times.encode))
        }),
        Column::optional_number("client_wait_us", |ended| {
            let times = ended.status.row_times;
            times.map(|times| microseconds(times.reader))
        }),
        Column::number("rows", |ended| ended.outcome.rows()),
        Column::number("sent_bytes", |ended| ended.status.sent_bytes),
        Column::number("workers", |ended| ended.status.work.workers),
        Column::number("shards", |ended| ended.status.work.shards),
        Column::number("segments", |ended| ended.status.work.segments),
        Column::number("scanned_rows", |ended| ended.status.work.scanned_rows),
        Column::number("scanned_bytes", |ended| ended.status.work.scanned_bytes),
        Column::optional_text("error_code", |ended| match &ended.outcome {
            EndOutcome::Finished { .. } => None,
            EndOutcome::Failed { code, .. } => Some(code.name().to_owned()),
        }),
        Column::optional_text("error", |ended| match &ended.outcome {
            EndOutcome::Finished { .. } => None,
            EndOutcome::Failed { message, .. } => Some(message.clone()),
        }),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<EndedStatement>> {
        Ok(sources.statements.ended(&sources.rights))
    }
}

/// Returns how long the stages of the statement's workers took.
fn stages(ended: &EndedStatement) -> Option<StageTimes> {
    ended.status.work.stages
}
