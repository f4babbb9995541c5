//! JDBC and ADBC send the handshake before anything else and take the token from the headers of the
//! response. Older clients read the token from the message.

use arrow_flight::HandshakeResponse;
use futures::stream::{self, BoxStream, StreamExt};
use tonic::{Response, Status};
use volary_flight_proto::Result;

use super::FlightSql;
use super::call::ClientCall;
use super::sessions::SessionToken;
use crate::login::Credentials;

/// Stream of the responses of a handshake.
pub(super) type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;

impl FlightSql {
    /// Creates a session for a client that shows a name and a password, or no credentials. A token
    /// is only checked. If the token belongs to no session, the client receives a session as a
    /// cookie. The messages of the request are not read, because they only repeat the header.
    pub(super) fn shake_hands(&self, call: &ClientCall) -> Result<Response<HandshakeStream>> {
        tracing::debug!(user = call.principal.name(), peer = ?call.peer, "a client has connected");
        let session = SessionToken::new();
        let bearer = match &call.credentials {
            Credentials::Bearer(token) => token.clone(),
            Credentials::Basic { .. } | Credentials::None => {
                self.login.bearer_token(&call.principal, session.as_str())
            }
        };
        let message = HandshakeResponse {
            protocol_version: 0,
            payload: bearer.into(),
        };
        let mut response = Response::new(stream::iter([Ok(message)]).boxed());
        let metadata = response.metadata_mut();
        if !matches!(call.credentials, Credentials::Bearer(_)) {
            self.announce_bearer(metadata, &call.principal, &session)?;
        } else if call.session_token.is_none() {
            self.announce_session(metadata, call, &session)?;
        }
        self.renew_bearer(metadata, call)?;
        Ok(response)
    }
}
