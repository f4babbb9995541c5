//! What the headers of a call say: who calls, in which session, with which types, until when.

use std::net::SocketAddr;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response};
use volary_flight_proto::{Error, Result};

use super::FlightSql;
use super::auth::{self, Credentials, Principal};
use super::deadline::Deadline;
use super::sessions::ClientSession;
use super::types::{PROFILE_OPTION, Profile};

const AUTHORIZATION: &str = "authorization";

/// One call of a client.
#[derive(Debug)]
pub(super) struct Call {
    /// What the client showed.
    pub(super) credentials: Credentials,
    /// Who that is.
    pub(super) principal: Principal,
    /// Its session.
    pub(super) session: ClientSession,
    /// The types that the client is sent.
    pub(super) profile: Profile,
    /// When the call has to end.
    pub(super) deadline: Deadline,
    /// Where the client is.
    pub(super) peer: Option<SocketAddr>,
}

impl FlightSql {
    /// Reads the headers of a call.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for wrong credentials, `INVALID_ARGUMENT` for an option that does not exist.
    pub(super) fn call<T>(&self, request: &Request<T>) -> Result<Call> {
        let metadata = request.metadata();
        let credentials = auth::credentials(metadata)?;
        let principal = auth::authenticate(&credentials)?;
        let session = self.sessions.of(&credentials);
        let profile = match profile_header(metadata)? {
            Some(profile) => profile,
            None => session.profile().unwrap_or_default(),
        };
        Ok(Call {
            credentials,
            principal,
            session,
            profile,
            deadline: Deadline::of(metadata, self.config.query.timeout),
            peer: request.remote_addr(),
        })
    }

    /// Tells a client that has changed a session without a token the session's token.
    pub(super) fn respond<T>(&self, call: &Call, message: T) -> Result<Response<T>> {
        let mut response = Response::new(message);
        if let Some(token) = self
            .sessions
            .keep_if_changed(&call.credentials, &call.session)
        {
            announce_token(response.metadata_mut(), &token)?;
        }
        Ok(response)
    }
}

/// Puts a session's token into the headers of a response: drivers use it from then on.
pub(super) fn announce_token(metadata: &mut MetadataMap, token: &str) -> Result<()> {
    let value = MetadataValue::try_from(format!("Bearer {token}"))
        .map_err(|_| Error::internal("a session's token cannot be a header"))?;
    metadata.insert(AUTHORIZATION, value);
    Ok(())
}

fn profile_header(metadata: &MetadataMap) -> Result<Option<Profile>> {
    let Some(value) = metadata.get(PROFILE_OPTION) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| Error::invalid(format!("the header {PROFILE_OPTION} is no text")))?;
    text.parse().map(Some)
}
