//! Drivers cancel a query by dropping its stream. The APIs of the Go, Java and C++ clients and the
//! `volary` command send a call to cancel it.

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, ProstMessageExt};
use arrow_flight::{CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::actions::decode_body;
use super::call::ClientCall;
use super::tickets;

impl FlightSql {
    /// Handles CancelFlightInfo and returns the body of the answer.
    pub(super) fn cancel_flight_info(&self, call: &ClientCall, body: &Bytes) -> Result<Bytes> {
        let request: CancelFlightInfoRequest = decode_body("CancelFlightInfo", body)?;
        let status = self.cancel(call, request.info)?;
        let result = CancelFlightInfoResult {
            status: status.into(),
        };
        Ok(result.encode_to_vec().into())
    }

    /// Handles CancelQuery, the deprecated predecessor of CancelFlightInfo, and returns the body of
    /// the answer.
    pub(super) fn cancel_query(
        &self,
        call: &ClientCall,
        request: &ActionCancelQueryRequest,
    ) -> Result<Bytes> {
        let info: FlightInfo = decode_body("CancelQuery", &request.info)?;
        let result = ActionCancelQueryResult {
            // The two enumerations have the same values.
            result: self.cancel(call, Some(info))?.into(),
        };
        Ok(result.as_any().encode_to_vec().into())
    }

    /// Cancels the query of a FlightInfo, as long as the query waits or runs on this gateway. Users
    /// may cancel their own queries. Administrators may cancel all queries, but have to name the
    /// query of another user by its id, because they cannot open its ticket.
    fn cancel(&self, call: &ClientCall, info: Option<FlightInfo>) -> Result<CancelStatus> {
        let info = info.unwrap_or_default();
        let endpoint = info.endpoint.into_iter().next();
        let mut is_direct = false;
        let id: QueryId = match endpoint.and_then(|endpoint| endpoint.ticket) {
            Some(ticket) => match self.tickets.open_query(&call.principal, &ticket)? {
                Some((id, _)) => {
                    is_direct = tickets::is_direct(&ticket.ticket);
                    id
                }
                None => return Ok(CancelStatus::NotCancellable),
            },
            // The FlightInfo of a query that is still polled has no ticket.
            None => std::str::from_utf8(&info.app_metadata)
                .ok()
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| {
                    Error::invalid("the FlightInfo to cancel has no ticket and no query id")
                })?,
        };
        let rights = &call.principal.rights;
        let waited = self.tickets.forget_plan(&call.principal, id);
        let statements = self.engine.statements();
        if statements.end_by(rights, id, "the client cancelled it") || waited {
            return Ok(CancelStatus::Cancelled);
        }
        if is_direct {
            // The parts of the query run at the workers as long as the client reads them.
            return Ok(CancelStatus::NotCancellable);
        }
        Err(Error::not_found(format!(
            "query {id} does not run here: it has ended, or runs on another gateway"
        )))
    }
}
