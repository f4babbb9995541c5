//! Makes the rows of system.queries and system.query_log: the statements of this gateway.

use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use arrow::array::{ArrayRef, RecordBatch, TimestampMicrosecondArray};
use volary_catalog::access::Rights;
use volary_flight_proto::Result;

use super::kind::Kind;
use super::rows::{batch, numbers, optional_texts, texts};
use crate::statements::{Ended, Outcome, StatementStatus, Statements};

/// Returns the rows of system.queries: the statements that this gateway works on.
pub(super) fn queries(statements: &Statements, by: &Rights) -> Result<RecordBatch> {
    let all = statements.all(by);
    let all: Vec<&StatementStatus> = all.iter().collect();
    let mut columns = whose(&all);
    columns.push(texts(all.iter().map(|status| status.state.name())));
    columns.extend(what_and_when(&all));
    let number = |of: fn(&StatementStatus) -> u64| numbers(all.iter().map(|status| of(status)));
    columns.extend([
        number(|status| status.sent_bytes),
        number(|status| status.memory_bytes),
        number(|status| status.work.workers),
        number(|status| status.work.workers_done),
        number(|status| status.work.shards),
        number(|status| status.work.scanned_rows),
        number(|status| status.work.scanned_bytes),
    ]);
    batch(Kind::Queries, columns)
}

/// Returns the rows of system.query_log: the statements that have ended.
pub(super) fn query_log(statements: &Statements, by: &Rights) -> Result<RecordBatch> {
    let ended = statements.ended(by);
    let all: Vec<_> = ended.iter().map(|ended| &ended.status).collect();
    let outcomes = || ended.iter().map(|ended: &Ended| &ended.outcome);
    let mut columns = whose(&all);
    columns.push(texts(outcomes().map(Outcome::name)));
    columns.extend(what_and_when(&all));
    let number = |of: fn(&StatementStatus) -> u64| numbers(all.iter().map(|status| of(status)));
    let failure = |of: fn(&Outcome) -> Option<String>| optional_texts(outcomes().map(of));
    columns.extend([
        numbers(outcomes().map(Outcome::rows)),
        number(|status| status.sent_bytes),
        number(|status| status.work.workers),
        number(|status| status.work.shards),
        number(|status| status.work.segments),
        number(|status| status.work.scanned_rows),
        number(|status| status.work.scanned_bytes),
        failure(|outcome| match outcome {
            Outcome::Finished { .. } => None,
            Outcome::Failed { code, .. } => Some(code.name().to_owned()),
        }),
        failure(|outcome| match outcome {
            Outcome::Finished { .. } => None,
            Outcome::Failed { message, .. } => Some(message.clone()),
        }),
    ]);
    batch(Kind::QueryLog, columns)
}

fn whose(all: &[&StatementStatus]) -> Vec<ArrayRef> {
    let issuers = || all.iter().map(|status| &status.issuer);
    vec![
        texts(all.iter().map(|status| status.id.to_string())),
        texts(issuers().map(|issuer| issuer.session.to_string())),
        texts(issuers().map(|issuer| issuer.user.as_str())),
        optional_texts(issuers().map(|issuer| issuer.client.map(|it| it.to_string()))),
        optional_texts(issuers().map(|issuer| issuer.tag.clone())),
    ]
}

fn what_and_when(all: &[&StatementStatus]) -> [ArrayRef; 5] {
    let started = all.iter().map(|status| {
        let since_1970 = status.started.duration_since(UNIX_EPOCH);
        i64::try_from(since_1970.unwrap_or_default().as_micros()).unwrap_or(i64::MAX)
    });
    let started = TimestampMicrosecondArray::from_iter_values(started).with_timezone("UTC");
    let time = |of: fn(&StatementStatus) -> Duration| {
        numbers(all.iter().map(|status| microseconds(of(status))))
    };
    [
        texts(all.iter().map(|status| status.text.as_str())),
        Arc::new(started),
        time(|status| status.planning),
        time(|status| status.queued),
        time(|status| status.running),
    ]
}

fn microseconds(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
