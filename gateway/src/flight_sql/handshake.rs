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
use super::call::{announce_bearer, announce_session, shown_token};
use super::sessions::SessionToken;

/// The responses of a handshake.
pub(super) type HandshakeStream = BoxStream<'static, Result<HandshakeResponse, Status>>;

impl FlightSql {
    /// A new session for a name and a password, or for none. A token is only checked; one that is an API key gets its session as a
    /// cookie. The request's messages say nothing that the header does not say.
    pub(super) fn shake_hands<T>(&self, request: &Request<T>) -> Result<Response<HandshakeStream>> {
        let credentials = auth::credentials(request.metadata())?;
        let principal = auth::authenticate(&credentials)?;
        tracing::debug!(user = %principal.name, peer = ?request.remote_addr(), "a client has connected");
        let session = SessionToken::new();
        let bearer = match &credentials {
            Credentials::Bearer(token) => token,
            Credentials::Basic { .. } | Credentials::None => session.as_str(),
        };
        let message = HandshakeResponse {
            protocol_version: 0,
            payload: bearer.to_owned().into(),
        };
        let mut response = Response::new(stream::iter([Ok(message)]).boxed());
        if !matches!(credentials, Credentials::Bearer(_)) {
            announce_bearer(response.metadata_mut(), &session)?;
        } else if shown_token(&credentials, request.metadata()).is_none() {
            announce_session(response.metadata_mut(), &credentials, &session)?;
        }
        Ok(response)
    }
}
