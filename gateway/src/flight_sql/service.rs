use arrow_flight::flight_service_server::FlightService;
use arrow_flight::sql::Command;
use arrow_flight::{
    Action, Criteria, Empty, FlightData, FlightDescriptor, FlightInfo, HandshakeRequest, PollInfo,
    SchemaResult, Ticket,
};
use futures::{Stream, TryStreamExt};
use tonic::{Request, Response, Status, Streaming};
use volary_flight_proto::{Result, ipc};

use super::FlightSql;
use super::actions::{ActionTypeStream, ResultStream, action_types};
use super::call::ClientCall;
use super::descriptor::DescribedRequest;
use super::direct::repeat_bearer;
use super::direct_option::DirectResults;
use super::exchange::ProgressNotes;
use super::handshake::HandshakeStream;
use super::ingest;
use super::list::FlightInfoStream;
use super::metadata::metadata_schema;
use super::statement::ClientStatement;
use super::update::PutResultStream;
use super::worker_actions;
use volary_exec::client_rows::ClientMessages;
use volary_node::tls::PeerKind;

/// The source of rows that a client asks for with GetFlightInfo or GetSchema.
enum RowRequest {
    Statement(ClientStatement),
    /// A request for metadata.
    Listing(Command),
}

impl FlightSql {
    pub(super) async fn info(
        &self,
        call: &ClientCall,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        match self.row_request(call, &descriptor)? {
            RowRequest::Statement(statement) => {
                self.statement_info(call, statement, descriptor).await
            }
            RowRequest::Listing(command) => self.metadata_info(call, command, descriptor),
        }
    }

    /// Returns the source of the rows that a descriptor asks for.
    fn row_request(&self, call: &ClientCall, descriptor: &FlightDescriptor) -> Result<RowRequest> {
        let described = DescribedRequest::from_descriptor(descriptor)?;
        Ok(match described {
            DescribedRequest::Sql(sql) | DescribedRequest::Query(sql) => {
                RowRequest::Statement(ClientStatement::without_parameters(sql))
            }
            DescribedRequest::PreparedQuery(handle) => {
                RowRequest::Statement(self.prepared_statement(call, &handle)?)
            }
            DescribedRequest::Listing(command) => RowRequest::Listing(command),
            DescribedRequest::Update(_)
            | DescribedRequest::PreparedUpdate(_)
            | DescribedRequest::Ingest(_)
            | DescribedRequest::Lookup(_) => {
                return Err(described.unsupported_error());
            }
        })
    }

    /// Returns the messages that a client streams. The error for a message that is too large names
    /// the setting that limits it.
    fn messages(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> impl Stream<Item = Result<FlightData, Status>> + Send + Unpin + use<> {
        let limit = self.config.query.message_limit();
        request
            .into_inner()
            .map_err(move |status| limit.explain(status))
    }

    async fn schema(
        &self,
        call: &ClientCall,
        descriptor: &FlightDescriptor,
    ) -> Result<SchemaResult> {
        let schema = match self.row_request(call, descriptor)? {
            RowRequest::Statement(statement) => self.statement_schema(call, &statement).await?,
            RowRequest::Listing(command) => metadata_schema(&command)?,
        };
        Ok(SchemaResult {
            schema: ipc::schema_to_bytes(&schema),
        })
    }
}

#[tonic::async_trait]
impl FlightService for FlightSql {
    type HandshakeStream = HandshakeStream;
    type ListFlightsStream = FlightInfoStream;
    type DoGetStream = ClientMessages;
    type DoPutStream = PutResultStream;
    type DoExchangeStream = ClientMessages;
    type DoActionStream = ResultStream;
    type ListActionsStream = ActionTypeStream;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Result<Response<Self::HandshakeStream>, Status> {
        let call = self.read_call(&request).await?;
        Ok(self.shake_hands(&call)?)
    }

    async fn list_flights(
        &self,
        request: Request<Criteria>,
    ) -> Result<Response<Self::ListFlightsStream>, Status> {
        let call = self.read_call(&request).await?;
        let flights = self.list(&call, request.get_ref())?;
        Ok(self.respond(&call, flights)?)
    }

    async fn get_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<FlightInfo>, Status> {
        let call = self.read_call(&request).await?;
        let info = self.info(&call, request.into_inner()).await?;
        let mut response = self.respond(&call, info)?;
        repeat_bearer(&call, &mut response)?;
        Ok(response)
    }

    async fn poll_flight_info(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<PollInfo>, Status> {
        let mut call = self.read_call(&request).await?;
        // A polled query already runs on this gateway, so its client cannot fetch the rows from the
        // workers.
        call.direct_results = DirectResults::Off;
        let poll = self.poll(&call, request.into_inner()).await?;
        Ok(self.respond(&call, poll)?)
    }

    async fn get_schema(
        &self,
        request: Request<FlightDescriptor>,
    ) -> Result<Response<SchemaResult>, Status> {
        let call = self.read_call(&request).await?;
        let schema = self.schema(&call, request.get_ref()).await?;
        Ok(self.respond(&call, schema)?)
    }

    async fn do_get(
        &self,
        request: Request<Ticket>,
    ) -> Result<Response<Self::DoGetStream>, Status> {
        let call = self.read_call(&request).await?;
        let rows = self.redeem(&call, request.get_ref()).await?;
        let mut response = Response::new(rows);
        self.renew_bearer(response.metadata_mut(), &call)?;
        Ok(response)
    }

    async fn do_put(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoPutStream>, Status> {
        let call = self.read_call(&request).await?;
        let options = ingest::header_options(request.metadata())?;
        let answers = self.put(&call, options, self.messages(request)).await?;
        Ok(self.respond(&call, answers)?)
    }

    async fn do_exchange(
        &self,
        request: Request<Streaming<FlightData>>,
    ) -> Result<Response<Self::DoExchangeStream>, Status> {
        let call = self.read_call(&request).await?;
        let progress = ProgressNotes::from_headers(request.metadata())?;
        let options = ingest::header_options(request.metadata())?;
        let answer = self.exchange(&call, progress, options, self.messages(request));
        let answer = answer.await?;
        Ok(self.respond(&call, answer)?)
    }

    async fn do_action(
        &self,
        request: Request<Action>,
    ) -> Result<Response<Self::DoActionStream>, Status> {
        if worker_actions::is_worker_action(request.get_ref()) {
            // Workers are not users. Their messages are sealed instead.
            PeerKind::of(request.extensions()).check_is_node()?;
            let peer = request.remote_addr();
            let results = self
                .handle_worker_action(&request.into_inner(), peer)
                .await?;
            return Ok(Response::new(results));
        }
        let call = self.read_call(&request).await?;
        let results = self.run_action(&call, request.into_inner()).await?;
        Ok(self.respond(&call, results)?)
    }

    async fn list_actions(
        &self,
        request: Request<Empty>,
    ) -> Result<Response<Self::ListActionsStream>, Status> {
        let call = self.read_call(&request).await?;
        Ok(self.respond(&call, action_types())?)
    }
}
