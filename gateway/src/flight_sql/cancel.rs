//! Cancellation by a call of its own. Drivers drop their stream instead; the API of the Go, Java and C++ clients and
//! `volary` send it.

use arrow_flight::sql::{ActionCancelQueryRequest, ActionCancelQueryResult, ProstMessageExt};
use arrow_flight::{CancelFlightInfoRequest, CancelFlightInfoResult, CancelStatus, FlightInfo};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::actions::decoded;

impl FlightSql {
    /// CancelFlightInfo: the body of its answer.
    pub(super) fn cancel_flight_info(&self, body: &Bytes) -> Result<Bytes> {
        let request: CancelFlightInfoRequest = decoded("CancelFlightInfo", body)?;
        let status = self.cancel(request.info)?;
        let result = CancelFlightInfoResult {
            status: status.into(),
        };
        Ok(result.encode_to_vec().into())
    }

    /// CancelQuery, its deprecated predecessor: the body of its answer.
    pub(super) fn cancel_query(&self, request: &ActionCancelQueryRequest) -> Result<Bytes> {
        let info: FlightInfo = decoded("CancelQuery", &request.info)?;
        let result = ActionCancelQueryResult {
            // The two enumerations have the same values.
            result: self.cancel(Some(info))?.into(),
        };
        Ok(result.as_any().encode_to_vec().into())
    }

    /// Cancels the query of a FlightInfo that this gateway made, as long as it waits or runs here.
    fn cancel(&self, info: Option<FlightInfo>) -> Result<CancelStatus> {
        let info = info.unwrap_or_default();
        let endpoint = info.endpoint.into_iter().next();
        let id: QueryId = match endpoint.and_then(|endpoint| endpoint.ticket) {
            Some(ticket) => match self.tickets.open_query(&ticket)? {
                Some((id, _)) => id,
                None => return Ok(CancelStatus::NotCancellable),
            },
            // One that is polled has no ticket yet.
            None => std::str::from_utf8(&info.app_metadata)
                .ok()
                .and_then(|id| id.parse().ok())
                .ok_or_else(|| {
                    Error::invalid("the FlightInfo to cancel has no ticket and no query id")
                })?,
        };
        let waited = self.tickets.take_plan(id).is_some();
        let statements = self.engine.statements();
        if statements.end(id, "the client cancelled it") || waited {
            return Ok(CancelStatus::Cancelled);
        }
        Err(Error::not_found(format!(
            "query {id} does not run here: it has ended, or runs on another gateway"
        )))
    }
}
