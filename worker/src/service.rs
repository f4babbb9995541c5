use std::sync::Arc;
use std::time::Duration;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::{
    Action, ActionType, Empty, FlightData, HandshakeRequest, HandshakeResponse, PutResult, Ticket,
};
use bytes::Bytes;
use futures::future::ready;
use futures::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;
use volary_flight_proto::control::{CONTROL_ACTION, Control, Optimize, control};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::write::{KEEP_ALIVE_INTERVAL, WriteRequest};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::flight::{Answer, Flight, MessageStream};
use volary_node::tls::PeerKind;
use volary_node::traces;

use crate::background::run_blocking;
use crate::clients::{ClientCalls, introduction_from_request};
use crate::compaction::Compactor;
use crate::context::WorkerContext;
use crate::fragment::keep_alive::KeepAliveStream;
use crate::fragment::run;
use crate::fragment::small_answer::buffer_small_answer;
use crate::membership::Reporter;
use crate::write::{self, Backpressure, ReceivedStreams, WriteContext};

#[cfg(test)]
mod tests;

/// Timeout for the first message of a write. This message says what the write is, and a gateway
/// sends it at once.
const FIRST_MESSAGE_TIMEOUT: Duration = Duration::from_secs(30);

/// The Flight service of a worker. It accepts only tickets, writes and commands that a node of its
/// cluster sealed.
#[derive(Debug, Clone)]
pub struct WorkerService {
    context: Arc<WorkerContext>,
    reporter: Arc<Reporter>,
    clients: ClientCalls,
    compactor: Arc<Compactor>,
    backpressure: Arc<Backpressure>,
    received_streams: Arc<ReceivedStreams>,
}

impl WorkerService {
    /// Builds the service from what all calls share. `clients` serves the callers that are not
    /// nodes.
    pub fn new(context: Arc<WorkerContext>, reporter: Arc<Reporter>, clients: ClientCalls) -> Self {
        let compactor = Compactor::new(WriteContext::of_worker(&context));
        let backpressure =
            Backpressure::new(context.storage.clone(), context.config.storage.clone());
        Self {
            context,
            reporter,
            clients,
            compactor: Arc::new(compactor),
            backpressure: Arc::new(backpressure),
            received_streams: Arc::default(),
        }
    }

    /// Returns what merges the segments of the worker.
    pub(crate) fn compactor(&self) -> &Arc<Compactor> {
        &self.compactor
    }

    /// Opens a ticket and returns the messages of its fragment. Checks only what is cheap to check;
    /// the stream reports all other errors.
    fn redeem_ticket(&self, ticket: &[u8]) -> Result<KeepAliveStream> {
        let ticket: FragmentTicket = self.context.sealer.open(Purpose::Fragment, ticket)?;
        self.context
            .check_ticket_addressee(ticket.cluster, ticket.worker_id)?;
        self.context.history.check(ticket.lineage.as_ref())?;
        run::run_for_gateway(Arc::clone(&self.context), ticket)
    }

    /// Begins a write. The returned future receives and stores the rows.
    async fn begin_write(
        &self,
        mut messages: Streaming<FlightData>,
    ) -> Result<impl Future<Output = Result<PutResult>> + Send + use<>> {
        let limit = self.context.config.message_limit();
        let first = timeout(FIRST_MESSAGE_TIMEOUT, messages.message())
            .await
            .map_err(|_| {
                let text =
                    format!("the write has sent no first message within {FIRST_MESSAGE_TIMEOUT:?}");
                Error::new(ErrorCode::DeadlineExceeded, text)
            })?
            .map_err(|status| limit.explain(status))?
            .ok_or_else(|| Error::invalid("the write has sent no message"))?;
        let request = self.accept_write_request(&first)?;
        // A gateway of the same process may call from within a span of its own.
        let span = tracing::info_span!(
            parent: None,
            "write",
            query_id = %request.query_id,
            write_id = request.write_id,
            worker = %self.context.id
        );
        traces::continue_from(&span, TraceParent::from_bytes(&request.trace));
        let rest = messages.map_err(move |status| limit.explain(status));
        let counted_rows = Arc::clone(&self.context.totals);
        let counted_bytes = Arc::clone(&counted_rows);
        let data = stream::once(ready(Ok(first)))
            .chain(rest)
            .and_then(move |message| ready(limit.check_uncompressed(message).map_err(Status::from)))
            .inspect_ok(move |message| counted_bytes.received.add_message(message))
            .map_err(|status| FlightError::Tonic(Box::new(status)));
        let rows = FlightRecordBatchStream::new_from_flight_data(data)
            .inspect_ok(move |batch| counted_rows.received.add_rows(batch.num_rows() as u64))
            .map_err(Error::from);
        let context = WriteContext {
            runtimes: self.context.runtimes.of_user(request.owner),
            ..WriteContext::of_worker(&self.context)
        };
        let history = Arc::clone(&self.context.history);
        let backpressure = Arc::clone(&self.backpressure);
        let (lineage, commits) = (request.lineage, request.commits);
        let writing = async move {
            match history.has_adopted(lineage.as_ref()) {
                true => history.hear(lineage.as_ref(), commits)?,
                false => run_blocking(move || history.hear(lineage.as_ref(), commits)).await?,
            }
            if let Some(table) = &request.table {
                backpressure.admit(TableId(table.table_id)).await?;
            }
            let written = write::write(&context, request, Box::pin(rows)).await?;
            Ok(PutResult {
                app_metadata: written.encode_to_vec().into(),
            })
        };
        Ok(writing.instrument(span))
    }

    fn accept_write_request(&self, first: &FlightData) -> Result<WriteRequest> {
        let descriptor = first
            .flight_descriptor
            .as_ref()
            .ok_or_else(|| Error::invalid("the write's first message has no descriptor"))?;
        let request: WriteRequest = self.context.sealer.open(Purpose::Write, &descriptor.cmd)?;
        self.context
            .check_addressee(&request.cluster_id, request.worker_id)?;
        if request.instance != self.reporter.instance() {
            return Err(Error::unavailable(
                "this worker was restarted after the write had been prepared; run the statement again",
            ));
        }
        let expires_s = Sealer::expiry_s(&descriptor.cmd).unwrap_or_default();
        self.received_streams
            .accept(&request.stream_id, expires_s)?;
        Ok(request)
    }

    fn open_command(&self, body: &[u8]) -> Result<Control> {
        let command: Control = self.context.sealer.open(Purpose::Control, body)?;
        self.context
            .check_addressee(&command.cluster_id, command.worker_id)?;
        Ok(command)
    }

    /// Merges a table's segments. That may take minutes.
    async fn optimize(
        &self,
        optimize: Optimize,
        lineage: Option<Lineage>,
        commits: u64,
    ) -> Result<impl Future<Output = Result<arrow_flight::Result>> + Send + use<>> {
        let (Some(table), Some(snapshot)) = (optimize.table, optimize.snapshot) else {
            return Err(Error::invalid(
                "the command to optimize a table has no table or no snapshot",
            ));
        };
        let history = Arc::clone(&self.context.history);
        run_blocking(move || history.hear(lineage.as_ref(), commits)).await?;
        let compactor = Arc::clone(&self.compactor);
        Ok(async move {
            let optimized = compactor.optimize(table, snapshot).await?;
            let body = optimized.encode_to_vec().into();
            Ok(arrow_flight::Result { body })
        })
    }

    async fn run_command(&self, command: Control) -> Result<Bytes> {
        let storage = self.context.storage.clone();
        let (history, lineage) = (&self.context.history, command.lineage);
        let commits = command.commits;
        let command = command
            .command
            .ok_or_else(|| Error::invalid("the control message has no command"))?;
        match command {
            // A report is answered at once, whatever other commands wait for. The gateway considers
            // a worker lost if it does not answer.
            control::Command::Report(question) => {
                Ok(self.reporter.answer(question, lineage, commits).await)
            }
            control::Command::ListSegments(_) => {
                run_blocking(move || Ok(storage.list().encode_to_vec().into())).await
            }
            control::Command::DescribeStorage(_) => {
                let compactor = Arc::clone(&self.compactor);
                run_blocking(move || Ok(compactor.describe_storage().encode_to_vec().into())).await
            }
            control::Command::Optimize(_) => Err(Error::internal(
                "the command to optimize a table is answered with a stream",
            )),
            control::Command::DropTable(drop) => {
                history.check(lineage.as_ref())?;
                let table = TableId(drop.table_id);
                run_blocking(move || storage.drop_table(table).map(|()| Bytes::new())).await
            }
            control::Command::AbortWrite(abort) => {
                history.check(lineage.as_ref())?;
                let write = WriteId(abort.write_id);
                run_blocking(move || storage.abort_write(write).map(|()| Bytes::new())).await
            }
        }
    }
}

/// Returns the result of work that may take long. Until the result is there, the stream sends empty
/// messages at regular intervals, which show that the worker is alive. The answer begins with the
/// first message, so the caller is woken only once if the result is there soon.
async fn with_keep_alives<T: Default + Send + 'static>(
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Answer<MessageStream<T>> {
    let mut messages = stream::unfold(Some(Box::pin(work)), |work| async move {
        let mut work = work?;
        match timeout(KEEP_ALIVE_INTERVAL, &mut work).await {
            Ok(result) => Some((result.map_err(Status::from), None)),
            Err(_) => Some((Ok(T::default()), Some(work))),
        }
    })
    .boxed();
    let first = messages.next().await.transpose()?;
    let first = stream::iter(first.map(Ok));
    Ok(Response::new(first.chain(messages).boxed()))
}

/// Creates the error for a call that only a gateway serves.
fn gateways_only_error(what: &str) -> Status {
    let error = format!("a worker has no {what}; connect to a gateway");
    Error::new(ErrorCode::Unimplemented, error).into()
}

impl Flight for WorkerService {
    fn unserved_error(&self, call: &'static str) -> Status {
        gateways_only_error(match call {
            "ListFlights" => "list of flights",
            "DoExchange" => "exchange",
            _ => "SQL",
        })
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<MessageStream<FlightData>> {
        if Sealer::claims_purpose(Purpose::Direct, &request.get_ref().ticket) {
            return Ok(Response::new(self.clients.redeem_ticket(request).await?));
        }
        PeerKind::of(request.extensions()).check_is_node()?;
        let messages = self.redeem_ticket(&request.into_inner().ticket)?;
        Ok(Response::new(Box::pin(buffer_small_answer(messages).await)))
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Answer<MessageStream<PutResult>> {
        PeerKind::of(request.extensions()).check_is_node()?;
        let writing = self.begin_write(request.into_inner()).await?;
        with_keep_alives(writing).await
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Answer<MessageStream<arrow_flight::Result>> {
        let peer = PeerKind::of(request.extensions());
        let action = request.into_inner();
        if action.r#type != CONTROL_ACTION {
            return Err(gateways_only_error(&format!("action {}", action.r#type)));
        }
        peer.check_is_node()?;
        let mut command = self.open_command(&action.body)?;
        if let Some(control::Command::Optimize(optimize)) = &mut command.command {
            let optimize = std::mem::take(optimize);
            let optimizing = self.optimize(optimize, command.lineage, command.commits);
            return with_keep_alives(optimizing.await?).await;
        }
        let body = self.run_command(command).await?;
        let result = arrow_flight::Result { body };
        Ok(Response::new(stream::once(ready(Ok(result))).boxed()))
    }

    /// Logs a client in. Clients that a gateway sends to a worker begin with a handshake.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<MessageStream<HandshakeResponse>> {
        let introduction = introduction_from_request(&request, Bytes::new())?;
        Ok(self.clients.shake_hands(introduction).await?)
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<MessageStream<ActionType>> {
        let action = ActionType {
            r#type: CONTROL_ACTION.to_owned(),
            description: "a command of a gateway".to_owned(),
        };
        Ok(Response::new(stream::once(ready(Ok(action))).boxed()))
    }
}
