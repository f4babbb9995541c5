//! The Flight service of a worker. Gateways call it, and so do clients with a ticket for this
//! worker's part of a result.

use std::sync::Arc;
use std::time::Duration;

use arrow_flight::decode::FlightRecordBatchStream;
use arrow_flight::error::FlightError;
use arrow_flight::{
    Action, ActionType, Empty, FlightData, HandshakeRequest, HandshakeResponse, PutResult, Ticket,
};
use bytes::Bytes;
use futures::future::ready;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::time::timeout;
use tonic::{Request, Response, Status, Streaming};
use tracing::Instrument;
use volary_flight_proto::control::{CONTROL_ACTION, Control, control};
use volary_flight_proto::ids::{TableId, WriteId};
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::write::{SIGN_OF_LIFE, WriteRequest};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::flight::{Answer, Flight, Messages};
use volary_node::tls::PeerKind;

use crate::background::in_background;
use crate::clients::{Clients, introduction_of};
use crate::context::WorkerContext;
use crate::fragment::in_one_piece::in_one_piece;
use crate::fragment::keep_alive::WithKeepAlive;
use crate::fragment::run;
use crate::membership::Reports;
use crate::write::{self, Received, WriteContext};

#[cfg(test)]
mod tests;

/// Timeout for the first message of a write. This message says what the write is, and a gateway
/// sends it at once.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);

/// The Flight service of a worker. It accepts only tickets, writes and commands that a node of its
/// cluster sealed.
#[derive(Debug, Clone)]
pub struct WorkerService {
    context: Arc<WorkerContext>,
    reports: Arc<Reports>,
    clients: Clients,
    received: Arc<Received>,
}

impl WorkerService {
    /// Builds the service from what all calls share. `clients` serves the callers that are not
    /// nodes.
    pub fn new(context: Arc<WorkerContext>, reports: Arc<Reports>, clients: Clients) -> Self {
        Self {
            context,
            reports,
            clients,
            received: Arc::default(),
        }
    }

    /// Opens a ticket and returns the messages of its fragment. Checks only what is cheap to check;
    /// the stream reports all other errors.
    fn fragment(&self, ticket: &[u8]) -> Result<WithKeepAlive> {
        let ticket: FragmentTicket = self.context.sealer.open(Purpose::Fragment, ticket)?;
        self.context
            .check_addressee_in_short(ticket.cluster, ticket.worker_id)?;
        self.context.history.check(ticket.lineage.as_ref())?;
        run::messages(Arc::clone(&self.context), ticket)
    }

    /// Begins a write. The returned future keeps the rows that arrive.
    async fn write(
        &self,
        mut messages: Streaming<FlightData>,
    ) -> Result<impl Future<Output = Result<PutResult>> + Send + use<>> {
        let limit = self.context.config.message_limit();
        let first = timeout(FIRST_MESSAGE, messages.message())
            .await
            .map_err(|_| {
                let text = format!("the write has sent no first message within {FIRST_MESSAGE:?}");
                Error::new(ErrorCode::DeadlineExceeded, text)
            })?
            .map_err(|status| limit.explain(status))?
            .ok_or_else(|| Error::invalid("the write has sent no message"))?;
        let request = self.write_request(&first)?;
        let span = tracing::info_span!(
            "write",
            query_id = %request.query_id,
            write_id = request.write_id,
            worker = %self.context.id
        );
        let rest = messages.map_err(move |status| limit.explain(status));
        let data = stream::once(ready(Ok(first)))
            .chain(rest)
            .and_then(move |message| ready(limit.uncompressed(message).map_err(Status::from)))
            .map_err(|status| FlightError::Tonic(Box::new(status)));
        let rows = FlightRecordBatchStream::new_from_flight_data(data).map_err(Error::from);
        let context = WriteContext {
            storage: self.context.storage.clone(),
            config: self.context.config.storage.clone(),
            parallelism: self.context.target_partitions(),
            runtime_env: Arc::clone(&self.context.runtime_env),
            runtimes: self.context.runtimes.of_user(request.owner),
        };
        let (history, lineage) = (Arc::clone(&self.context.history), request.lineage);
        let writing = async move {
            in_background(move || history.adopt(lineage.as_ref())).await?;
            let written = write::write(&context, request, Box::pin(rows)).await?;
            Ok(PutResult {
                app_metadata: written.encode_to_vec().into(),
            })
        };
        Ok(writing.instrument(span))
    }

    fn write_request(&self, first: &FlightData) -> Result<WriteRequest> {
        let descriptor = first
            .flight_descriptor
            .as_ref()
            .ok_or_else(|| Error::invalid("the write's first message has no descriptor"))?;
        let request: WriteRequest = self.context.sealer.open(Purpose::Write, &descriptor.cmd)?;
        self.context
            .check_addressee(&request.cluster_id, request.worker_id)?;
        if request.instance != self.reports.instance() {
            return Err(Error::unavailable(
                "this worker was restarted after the write had been prepared; run the statement again",
            ));
        }
        let expires_s = Sealer::expires_s(&descriptor.cmd).unwrap_or_default();
        self.received.take(&request.stream_id, expires_s)?;
        Ok(request)
    }

    async fn control(&self, body: &[u8]) -> Result<Bytes> {
        let command: Control = self.context.sealer.open(Purpose::Control, body)?;
        self.context
            .check_addressee(&command.cluster_id, command.worker_id)?;
        let storage = self.context.storage.clone();
        let (history, lineage) = (&self.context.history, command.lineage);
        let command = command
            .command
            .ok_or_else(|| Error::invalid("the control message has no command"))?;
        match command {
            // A report is answered at once, whatever other commands wait for. The gateway considers
            // a worker lost if it does not answer.
            control::Command::Report(question) => Ok(self.reports.answer(question, lineage).await),
            control::Command::ListSegments(_) => {
                in_background(move || Ok(storage.list().encode_to_vec().into())).await
            }
            control::Command::DropTable(drop) => {
                history.check(lineage.as_ref())?;
                let table = TableId(drop.table_id);
                in_background(move || storage.drop_table(table).map(|()| Bytes::new())).await
            }
            control::Command::AbortWrite(abort) => {
                history.check(lineage.as_ref())?;
                let write = WriteId(abort.write_id);
                in_background(move || storage.abort_write(write).map(|()| Bytes::new())).await
            }
        }
    }
}

/// Returns the result of a write. Until the result is there, empty messages come at regular
/// intervals. Sorting and syncing may take long, and these messages tell the gateway that the
/// worker lives.
fn with_signs_of_life(
    writing: impl Future<Output = Result<PutResult>> + Send + 'static,
) -> impl Stream<Item = Result<PutResult, Status>> + Send {
    stream::unfold(Some(Box::pin(writing)), |writing| async move {
        let mut writing = writing?;
        match timeout(SIGN_OF_LIFE, &mut writing).await {
            Ok(result) => Some((result.map_err(Status::from), None)),
            Err(_) => Some((Ok(PutResult::default()), Some(writing))),
        }
    })
}

/// Creates the error for what only a gateway has.
fn only_gateways_have(what: &str) -> Status {
    let error = format!("a worker has no {what}; connect to a gateway");
    Error::new(ErrorCode::Unimplemented, error).into()
}

impl Flight for WorkerService {
    fn not_served(&self, call: &'static str) -> Status {
        only_gateways_have(match call {
            "ListFlights" => "list of flights",
            "DoExchange" => "exchange",
            _ => "SQL",
        })
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Messages<FlightData>> {
        if Sealer::claims(Purpose::Direct, &request.get_ref().ticket) {
            return Ok(Response::new(self.clients.rows(request).await?));
        }
        PeerKind::of(request.extensions()).check_is_node()?;
        let messages = self.fragment(&request.into_inner().ticket)?;
        Ok(Response::new(Box::pin(in_one_piece(messages).await)))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Messages<PutResult>> {
        PeerKind::of(request.extensions()).check_is_node()?;
        let writing = self.write(request.into_inner()).await?;
        Ok(Response::new(with_signs_of_life(writing).boxed()))
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Messages<arrow_flight::Result>> {
        let peer = PeerKind::of(request.extensions());
        let action = request.into_inner();
        if action.r#type != CONTROL_ACTION {
            return Err(only_gateways_have(&format!("action {}", action.r#type)));
        }
        peer.check_is_node()?;
        let body = self.control(&action.body).await?;
        let result = arrow_flight::Result { body };
        Ok(Response::new(stream::once(ready(Ok(result))).boxed()))
    }

    /// Logs a client in. Clients that a gateway sends to a worker begin with a handshake.
    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Messages<HandshakeResponse>> {
        let introduction = introduction_of(&request, Bytes::new())?;
        Ok(self.clients.shake_hands(introduction).await?)
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Messages<ActionType>> {
        let action = ActionType {
            r#type: CONTROL_ACTION.to_owned(),
            description: "a command of a gateway".to_owned(),
        };
        Ok(Response::new(stream::once(ready(Ok(action))).boxed()))
    }
}
