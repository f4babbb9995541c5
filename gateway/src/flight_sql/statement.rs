use std::sync::Arc;

use arrow::array::Int64Array;
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::record_batch::RecordBatch;
use arrow_flight::{FlightDescriptor, FlightInfo, Ticket};
use bytes::Bytes;
use futures::FutureExt;
use tracing::{Instrument, Span};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::ticket::QueryTicket;
use volary_flight_proto::{Result, ipc};
use volary_node::traces;

use super::call::ClientCall;
use super::direct_option::DirectResults;
use super::stream::{query_messages, with_query_id};
use super::ticket_reads::{put_reads, reads_of, session_of};
use super::tickets::is_direct;
use super::watched_stream::watch_stream;
use super::{FlightSql, arrow_error};
use crate::client_types::{PROFILE_OPTION, TypeProfile, map_schema};
use crate::engine::{EarlierPlan, PlannedQuery, Session, StatementOutcome};
use crate::statements::ListedStatement;
use volary_exec::client_rows::{ClientMessages, batch_messages};
use volary_node::deadline::Deadline;

/// A statement with its parameters.
#[derive(Debug, Clone)]
pub(super) struct ClientStatement {
    /// Text of the statement.
    pub(super) sql: String,
    /// One row with a column for each parameter, as an IPC stream.
    pub(super) parameters: Option<Bytes>,
}

impl ClientStatement {
    /// Creates a statement without parameters.
    pub(super) fn without_parameters(sql: impl Into<String>) -> Self {
        Self {
            sql: sql.into(),
            parameters: None,
        }
    }

    /// Returns the parameters as a batch, or `None` if no row was bound.
    pub(super) fn parameters(&self) -> Result<Option<RecordBatch>> {
        let Some(bytes) = &self.parameters else {
            return Ok(None);
        };
        let batch = batch_from_bytes(bytes)?;
        Ok((batch.num_rows() > 0 && batch.num_columns() > 0).then_some(batch))
    }
}

impl FlightSql {
    /// Plans a query and returns its FlightInfo. Any other statement is run here, exactly once, and
    /// its ticket holds the outcome. It cannot wait for the DoGet: drivers send DDL and DML as
    /// queries, and then drop the DoGet or never send it.
    pub(super) async fn statement_info(
        &self,
        call: &ClientCall,
        statement: ClientStatement,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let id = QueryId::new();
        let work = async {
            let parameters = statement.parameters()?;
            match self.execute(call, id, &statement.sql, parameters).await? {
                StatementOutcome::Rows(query) => {
                    tracing::debug!("the query is planned");
                    self.planned_info(call, &statement, *query, descriptor)
                }
                StatementOutcome::Done(done) => {
                    tracing::debug!(rows = done.rows, "the statement was run");
                    self.outcome_info(call, id, &count_batch(done.rows)?, descriptor)
                }
                StatementOutcome::Answer(answer) => {
                    self.outcome_info(call, id, &answer, descriptor)
                }
            }
        };
        self.run_listed(call, id, &statement.sql, work).await
    }

    /// Plans a query. Runs any other statement.
    pub(super) async fn execute(
        &self,
        call: &ClientCall,
        id: QueryId,
        sql: &str,
        parameters: Option<RecordBatch>,
    ) -> Result<StatementOutcome> {
        let session = &call.session.engine;
        let executing = self.engine.execute(session, sql, parameters, id);
        let outcome = Box::pin(executing).await?;
        call.check_settings_persist()?;
        Ok(outcome)
    }

    fn planned_info(
        &self,
        call: &ClientCall,
        statement: &ClientStatement,
        query: PlannedQuery,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let ticket = query_ticket(call, statement, &query);
        let schema = map_schema(call.profile, &query.schema);
        if call.direct_results == DirectResults::On
            && let Some(info) = self.direct_info(call, &query, &schema, &ticket, &descriptor)?
        {
            return Ok(info);
        }
        let statement_bytes = ticket.sql.len() + ticket.parameters.len();
        let info = self.flight_info(call, &schema, ticket, descriptor)?;
        self.tickets
            .keep_plan(&call.principal, query, statement_bytes);
        Ok(info)
    }

    fn outcome_info(
        &self,
        call: &ClientCall,
        id: QueryId,
        outcome: &RecordBatch,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let ticket = QueryTicket {
            query_id: id.to_string(),
            result: Some(batch_to_bytes(outcome)?),
            ..QueryTicket::default()
        };
        self.flight_info(call, outcome.schema_ref(), ticket, descriptor)
    }

    /// Returns a FlightInfo with a ticket for rows of this schema.
    pub(super) fn flight_info(
        &self,
        call: &ClientCall,
        schema: &Schema,
        ticket: QueryTicket,
        descriptor: FlightDescriptor,
    ) -> Result<FlightInfo> {
        let ticket = bind_ticket(call, ticket);
        Ok(FlightInfo::new()
            .try_with_schema(schema)
            .map_err(arrow_error)?
            .with_endpoint(self.tickets.endpoint(&ticket))
            .with_descriptor(descriptor)
            // The id by which logs, errors and system.query_log name the query.
            .with_app_metadata(ticket.query_id)
            .with_ordered(true))
    }

    /// Returns the schema that a statement's rows would have.
    pub(super) async fn statement_schema(
        &self,
        call: &ClientCall,
        statement: &ClientStatement,
    ) -> Result<SchemaRef> {
        let (id, session) = (QueryId::new(), &call.session.engine);
        let parameters = statement.parameters()?;
        let describing = self
            .engine
            .describe(session, &statement.sql, parameters, id);
        let describing = Box::pin(describing);
        let description = self
            .run_listed(call, id, &statement.sql, describing)
            .await?;
        Ok(match description.rows {
            Some(rows) => map_schema(call.profile, &rows),
            None => count_schema(),
        })
    }

    /// Returns the rows of a ticket.
    pub(super) async fn redeem(
        &self,
        call: &ClientCall,
        ticket: &Ticket,
    ) -> Result<ClientMessages> {
        if is_direct(&ticket.ticket) {
            return self.redeem_part(call, ticket).await;
        }
        let mut ticket = self.tickets.open(&call.principal, ticket)?;
        let profile = take_profile(&mut ticket)?;
        if let Some(command) = &ticket.command {
            return self.ticket_rows(call, command, profile).map(batch_messages);
        }
        if let Some(result) = &ticket.result {
            return batch_from_bytes(result).map(batch_messages);
        }
        let id: QueryId = ticket.query_id.parse()?;
        let session = take_session(call, &mut ticket);
        let deadline = call
            .deadline
            .with_session_timeout(session.statement_timeout());
        if let Some(started) = deadline
            .run_until(
                self.polled_queries
                    .take(id, || self.engine.access())
                    .map(Ok),
            )
            .await?
        {
            return Ok(started);
        }
        let statements = self.engine.statements();
        let listed = statements.add(id, call.issuer_of_ticket(&ticket.trace), &ticket.sql);
        let query = match self.take_plan(call, id) {
            Some(query) => query,
            None => {
                let span = tracing::info_span!("plan_again", query_id = %id);
                let planning = self.plan_again(id, &session, ticket).instrument(span);
                let planned = listed
                    .run_until_ended(planning, deadline.wait_expired())
                    .await;
                planned
                    .map_err(|error| with_query_id(error, id))
                    .inspect_err(|error| listed.set_failed(error))?
            }
        };
        Ok(self.open_stream(listed, query, profile, deadline))
    }

    /// Returns the stream of a query's rows, which ends at the deadline.
    pub(super) fn open_stream(
        &self,
        listed: ListedStatement,
        query: PlannedQuery,
        profile: TypeProfile,
        deadline: Deadline,
    ) -> ClientMessages {
        let queue = query.queue().clone();
        let messages = query_messages(query, profile, listed.progress());
        watch_stream(listed, messages, deadline, queue, &self.stream_timers)
    }

    /// Takes the plan of a query that the caller has planned. Returns `None` if there is no plan,
    /// or if users or rights have changed since it was made.
    pub(super) fn take_plan(&self, call: &ClientCall, id: QueryId) -> Option<PlannedQuery> {
        let query = self.tickets.take_plan(&call.principal, id)?;
        self.engine.is_still_allowed(&query).then_some(query)
    }

    /// Plans the query of a ticket whose plan is not kept here. The ticket may have been redeemed
    /// before, may have waited too long, or may come from another gateway. The new plan reads the
    /// ticket's snapshot, so it returns the same rows. Planning fails if a table of the query was
    /// dropped or replaced. `session` has the ticket's settings.
    pub(super) async fn plan_again(
        &self,
        id: QueryId,
        session: &Session,
        ticket: QueryTicket,
    ) -> Result<PlannedQuery> {
        let earlier_plan = EarlierPlan {
            reads: reads_of(&ticket),
            snapshot: ticket.snapshot,
            columns_fingerprint: ticket.columns,
        };
        let statement = ClientStatement {
            sql: ticket.sql,
            parameters: (!ticket.parameters.is_empty()).then_some(ticket.parameters),
        };
        let (sql, parameters) = (&statement.sql, statement.parameters()?);
        let planning = self
            .engine
            .replan(session, sql, parameters, id, earlier_plan);
        Box::pin(planning).await
    }
}

/// Returns the ticket with which the query can be planned again.
pub(super) fn query_ticket(
    call: &ClientCall,
    statement: &ClientStatement,
    query: &PlannedQuery,
) -> QueryTicket {
    let mut ticket = QueryTicket {
        query_id: query.id.to_string(),
        sql: statement.sql.clone(),
        parameters: statement.parameters.clone().unwrap_or_default(),
        snapshot: Some(query.snapshot.clone()),
        settings: call.session.engine.settings(),
        columns: Some(query.columns_fingerprint()),
        trace: traces::parent_bytes(&Span::current()),
        ..QueryTicket::default()
    };
    put_reads(&mut ticket, &query.reads);
    ticket
}

/// Binds the ticket to the user of the call, and to the types that the call wants.
pub(super) fn bind_ticket(call: &ClientCall, mut ticket: QueryTicket) -> QueryTicket {
    if call.profile != TypeProfile::default() {
        // The ticket may be redeemed by a call without the header. Its rows must have the announced
        // schema all the same.
        let profile = call.profile.to_string();
        ticket.settings.insert(PROFILE_OPTION.to_owned(), profile);
    }
    call.principal.ticket_user().clone_into(&mut ticket.user);
    ticket
}

/// Takes the types of the rows out of the ticket's settings.
pub(super) fn take_profile(ticket: &mut QueryTicket) -> Result<TypeProfile> {
    let setting = ticket.settings.remove(PROFILE_OPTION);
    setting.map_or_else(|| Ok(TypeProfile::default()), |profile| profile.parse())
}

/// Creates a session for the user who redeems the ticket, and moves the ticket's settings into it.
pub(super) fn take_session(call: &ClientCall, ticket: &mut QueryTicket) -> Session {
    let rights = Arc::clone(&call.principal.rights);
    let session = Session::new(std::mem::take(&mut ticket.settings), rights);
    session
        .with_caller(call.session.engine.caller())
        .with_temporary_session(session_of(ticket))
}

/// Returns the schema of the answer to a statement without rows that was sent as a query. The
/// answer is one row with the column `count` (Int64, not null).
fn count_schema() -> SchemaRef {
    Arc::new(Schema::new(vec![Field::new(
        "count",
        DataType::Int64,
        false,
    )]))
}

fn count_batch(rows: Option<u64>) -> Result<RecordBatch> {
    let count = Int64Array::from(vec![record_count(rows)]);
    RecordBatch::try_new(count_schema(), vec![Arc::new(count)]).map_err(arrow_error)
}

/// Returns the number of written rows as Flight SQL counts them. It is 0 if rows are no measure of
/// what the statement did.
pub(super) fn record_count(rows: Option<u64>) -> i64 {
    i64::try_from(rows.unwrap_or(0)).unwrap_or(i64::MAX)
}

/// Encodes a batch for a ticket or a handle.
pub(super) fn batch_to_bytes(batch: &RecordBatch) -> Result<Bytes> {
    ipc::batches_to_bytes(batch.schema_ref(), std::slice::from_ref(batch))
}

fn batch_from_bytes(bytes: &Bytes) -> Result<RecordBatch> {
    let (schema, batches) = ipc::batches_from_bytes(bytes)?;
    concat_batches(&schema, &batches).map_err(arrow_error)
}
