use futures::stream::{self, StreamExt, TryStreamExt};
use tonic::Status;
use volary_exec::client_rows::{CLIENT_BATCH_BYTES, ClientMessages, client_messages, client_rows};
use volary_exec::stage_timer::StageTimer;
use volary_flight_proto::Error;
use volary_flight_proto::ids::QueryId;

use super::joined_messages::JoinedMessages;
use crate::client_types::{ClientSchema, TypeProfile, map_schema};
use crate::engine::PlannedQuery;
use crate::statements::ProgressHandle;

/// Returns the messages of a query. The query starts when the stream is first polled after the
/// schema was sent. Dropping the stream ends the query.
pub(super) fn query_messages(
    query: PlannedQuery,
    profile: TypeProfile,
    progress: ProgressHandle,
) -> ClientMessages {
    if query.passes_rows_unchanged() {
        return worker_messages(query, profile, progress);
    }
    let announced = map_schema(profile, &query.schema);
    let (id, timer) = (query.id, StageTimer::default());
    progress.set_row_timer(timer.clone());
    let (target, row_timer) = (announced.clone(), timer.clone());
    let rows = stream::once(Box::pin(query.start(progress.clone())))
        .map_ok(move |rows| {
            let rows = row_timer.source(rows);
            client_rows(rows, target.clone(), CLIENT_BATCH_BYTES)
        })
        .try_flatten()
        .inspect_ok(move |batch| progress.add_rows(batch.num_rows() as u64))
        .map_err(move |error| log_failure(error, id));
    timer.output(client_messages(announced, rows)).boxed()
}

/// Returns the messages of the workers, which convert their rows to the client's types themselves.
fn worker_messages(
    query: PlannedQuery,
    profile: TypeProfile,
    progress: ProgressHandle,
) -> ClientMessages {
    let id = query.id;
    let ClientSchema {
        message,
        decoded,
        announced,
    } = match query.client_schema(profile) {
        Ok(schema) => schema,
        Err(error) => return stream::iter([Err(with_query_id(error, id).into())]).boxed(),
    };
    let starting = {
        let progress = progress.clone();
        Box::pin(async move { query.start_forwarding(progress, &announced).await })
    };
    let timer = StageTimer::default();
    progress.set_row_timer(timer.clone());
    let row_timer = timer.clone();
    let messages = stream::once(starting)
        .map_ok(move |messages| row_timer.source(messages))
        .try_flatten()
        .boxed();
    let joined = timer.output(JoinedMessages::new(messages, decoded));
    let rows = joined.map(move |passed| match passed {
        Ok(passed) => {
            progress.add_rows(passed.rows);
            Ok(passed.message)
        }
        Err(error) => Err(Status::from(log_failure(error, id))),
    });
    stream::iter([Ok(message)]).chain(rows).boxed()
}

/// Logs an error that ends the rows of a query, with all its causes, which clients are not sent.
/// Returns the error with the query's id.
fn log_failure(error: Error, id: QueryId) -> Error {
    let error = with_query_id(error, id);
    tracing::debug!(query_id = %id, error = format_args!("{error:#}"), "the rows end with an error");
    error
}

/// Adds the query's id to an error that does not contain it.
pub(super) fn with_query_id(error: Error, id: impl std::fmt::Display) -> Error {
    let id = id.to_string();
    if error.message().contains(&id) {
        error
    } else {
        error.at(format_args!("query {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_said_once() {
        let error = with_query_id(
            with_query_id(Error::invalid("division by zero"), "q1"),
            "q1",
        );
        assert_eq!(error.message(), "query q1: division by zero");
    }
}
