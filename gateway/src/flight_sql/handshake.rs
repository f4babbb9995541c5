//! The handshake: from credentials to a session.
//!
//! JDBC and ADBC send it before anything else and take the token from the response's headers; older clients read it
//! from the message.

use arrow_flight::HandshakeResponse;
use futures::stream::{self, BoxStream, StreamExt};
use tonic::{Request, Response, Status};
use volary_flight_proto::Result;

use super::FlightSql;
use super::auth::{self, Credentials};
use super::call::announce_token;

/// The responses of a handshake.
pub(super) type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;

impl FlightSql {
    /// A new session for a name and a password, or for none; a token is only checked. The request's messages say nothing
    /// that the header does not say.
    pub(super) fn shake_hands<T>(&self, request: &Request<T>) -> Result<Response<HandshakeStream>> {
        let credentials = auth::credentials(request.metadata())?;
        let principal = auth::authenticate(&credentials)?;
        let token = match &credentials {
            Credentials::Bearer(token) => token.clone(),
            Credentials::Basic { .. } | Credentials::None => self.sessions.open(),
        };
        tracing::debug!(user = %principal.name, peer = ?request.remote_addr(), "a client has connected");
        let message = HandshakeResponse {
            protocol_version: 0,
            payload: token.clone().into(),
        };
        let mut response = Response::new(stream::iter([Ok(message)]).boxed());
        if !matches!(credentials, Credentials::Bearer(_)) {
            announce_token(response.metadata_mut(), &token)?;
        }
        Ok(response)
    }
}
