use arrow_flight::RenewFlightEndpointRequest;
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::actions::decode_body;
use super::call::ClientCall;

impl FlightSql {
    /// Handles RenewFlightEndpoint and returns the body of the answer: the endpoint with a new
    /// ticket for the same rows.
    pub(super) fn renew(&self, call: &ClientCall, body: &Bytes) -> Result<Bytes> {
        let request: RenewFlightEndpointRequest = decode_body("RenewFlightEndpoint", body)?;
        let endpoint = request.endpoint.unwrap_or_default();
        let ticket = endpoint
            .ticket
            .as_ref()
            .ok_or_else(|| Error::invalid("the endpoint to renew has no ticket"))?;
        let renewed =
            self.tickets
                .renew_endpoint(&call.principal, ticket, endpoint.location.clone())?;
        Ok(renewed.encode_to_vec().into())
    }
}
