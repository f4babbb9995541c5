use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::{Schema, SchemaRef};
use futures::stream::{self, Stream, StreamExt, TryStreamExt};
use tracing::Instrument;
use volary_exec::client_rows::{CLIENT_BATCH_BYTES, ClientMessages, client_messages, client_rows};
use volary_flight_proto::direct::DirectTicket;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::{Error, Result, ipc};
use volary_node::deadline::Deadline;
use volary_node::traces;

use crate::context::WorkerContext;
use crate::fragment::run;
use crate::totals::{CountedMessages, FragmentKind};

/// The part of a result that a ticket asks for, and its deadline.
pub(super) struct ResultPart {
    query_id: QueryId,
    ticket: FragmentTicket,
    announced_schema: SchemaRef,
    deadline: Deadline,
    /// The user of the query. Users get places in turn, so that one client's calls do not delay
    /// those of others.
    user: String,
}

impl ResultPart {
    /// Reads what a ticket for this worker asks for. `call_deadline` is the deadline of the
    /// client's call.
    ///
    /// # Errors
    /// Returns `UNAVAILABLE` for a ticket that is for another worker, and `INVALID_ARGUMENT` for an
    /// incomplete ticket.
    pub(super) fn of(
        context: &WorkerContext,
        ticket: DirectTicket,
        call_deadline: Deadline,
    ) -> Result<Self> {
        let limit = Duration::from_millis(ticket.timeout_ms);
        let part = ticket
            .part
            .ok_or_else(|| Error::invalid("the ticket names no part of the rows"))?;
        context.check_ticket_addressee(part.cluster, part.worker_id)?;
        context.history.check(part.lineage.as_ref())?;
        let announced: Schema = ipc::schema_from_bytes(&ticket.announced)?;
        Ok(Self {
            query_id: part.query_id()?,
            ticket: part,
            announced_schema: Arc::new(announced),
            user: ticket.query.map(|query| query.user).unwrap_or_default(),
            deadline: call_deadline.with_ticket_timeout(limit),
        })
    }

    /// Returns the messages, beginning with the schema. Dropping the stream ends the work.
    pub(super) fn messages(self, context: Arc<WorkerContext>) -> Result<ClientMessages> {
        let Self {
            query_id,
            ticket,
            announced_schema: announced,
            deadline,
            user: client,
        } = self;
        let span = tracing::info_span!("part", %query_id, worker = %context.id);
        traces::continue_from(&span, TraceParent::from_bytes(&ticket.trace));
        let fragment = context
            .fragment_cache
            .ticket_fragment(&ticket)?
            .ok_or_else(|| {
                Error::invalid("the ticket for a part of the rows does not contain its fragment")
            })?;
        let totals = Arc::clone(&context.totals);
        let error_context = format!("query {query_id}: worker {}", context.id);
        let running_rows = run::run_for_client(context, ticket, fragment, client, deadline.limit());
        let started = running_rows.instrument(span.clone());
        let target = Arc::clone(&announced);
        let rows = stream::once(started)
            .map_ok(move |rows| client_rows(rows, Arc::clone(&target), CLIENT_BATCH_BYTES))
            .try_flatten();
        let rows = end_at_deadline(deadline, rows)
            .map_err(move |error| error.at(&error_context))
            .inspect_err(move |error| {
                span.in_scope(|| {
                    tracing::info!(error = format_args!("{error:#}"), "part failed");
                });
            });
        let messages = client_messages(announced, rows);
        Ok(CountedMessages::new(messages, FragmentKind::Client, &totals).boxed())
    }
}

/// Returns the rows until the deadline passes, and then an error instead of the remaining rows.
fn end_at_deadline<T>(
    deadline: Deadline,
    rows: impl Stream<Item = Result<T>> + Send + 'static,
) -> impl Stream<Item = Result<T>> + Send {
    let open = (Box::pin(rows), Box::pin(deadline.wait_expired()));
    stream::unfold(Some(open), |open| async move {
        let (mut rows, mut expiry) = open?;
        tokio::select! {
            biased;
            error = &mut expiry => Some((Err(error), None)),
            next = rows.next() => {
                let next = next?;
                let open = next.is_ok().then_some((rows, expiry));
                Some((next, open))
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataMap;
    use volary_flight_proto::ErrorCode;

    use super::*;

    #[tokio::test]
    async fn rows_that_take_too_long_end_with_an_error() {
        let deadline = Deadline::from_metadata(&MetadataMap::new(), Duration::from_millis(5));
        let rows = stream::iter([Ok(1)]).chain(stream::pending());
        let all: Vec<_> = end_at_deadline(deadline, rows).collect().await;
        assert!(
            matches!(&all[..], [Ok(1), Err(error)] if error.code() == ErrorCode::DeadlineExceeded)
        );
    }

    #[tokio::test]
    async fn nothing_follows_an_error() {
        let deadline = Deadline::from_metadata(&MetadataMap::new(), Duration::from_secs(60));
        let rows = stream::iter([Ok(1), Err(Error::internal("broken")), Ok(2)]);
        let all: Vec<_> = end_at_deadline(deadline, rows).collect().await;
        assert!(matches!(&all[..], [Ok(1), Err(_)]));
    }
}
