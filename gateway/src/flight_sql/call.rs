//! What the headers of a call say: who calls, in which session, with which types, until when. And what those of its answer say.

use std::future::Future;
use std::net::SocketAddr;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response};
use tracing::Instrument;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::auth::{self, AUTHORIZATION, Credentials, Principal};
use super::deadline::Deadline;
use super::sessions::{ClientSession, SessionToken};
use super::stream::with_query;
use super::types::{PROFILE_OPTION, Profile};
use super::{FlightSql, cookie};
use crate::engine::Caller;
use crate::statements::Issuer;

/// One call of a client.
#[derive(Debug)]
pub(super) struct Call {
    /// What the client showed.
    pub(super) credentials: Credentials,
    /// Who that is.
    pub(super) principal: Principal,
    /// Its session.
    pub(super) session: ClientSession,
    /// By what the client named it; `None` if it named none, and the session is one for this call.
    pub(super) session_token: Option<SessionToken>,
    /// The types that the client is sent.
    pub(super) profile: Profile,
    /// When the call has to end.
    pub(super) deadline: Deadline,
    /// Where the client is.
    pub(super) peer: Option<SocketAddr>,
}

impl Call {
    /// Who has sent its statements.
    pub(super) fn issuer(&self) -> Issuer {
        Issuer {
            user: self.principal.name.clone(),
            session: self.session.engine.id(),
            client: self.peer,
        }
    }

    /// To be called after a statement was run. A client that has named no session may not take the one that the answer names, and
    /// its SET would be lost without a word.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the statement has changed a session that the client cannot be relied on to name again.
    pub(super) fn check_settings_last(&self) -> Result<()> {
        if self.session_token.is_none() && !self.session.is_default() {
            return Err(Error::invalid(
                "SET would have no effect: this client names no session. Let it log in with a user's name (a handshake), or keep cookies (ADBC: adbc.flight.sql.rpc.with_cookie_middleware), and send it again",
            ));
        }
        Ok(())
    }
}

impl FlightSql {
    /// Does the work of one statement until the call's deadline, or until the statement is ended. All of its log lines and errors carry the
    /// query's id, also where the statement cannot be parsed: a user who reports an error names what the operator has to look for.
    pub(super) async fn work<T>(
        &self,
        call: &Call,
        id: QueryId,
        sql: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let listed = self.engine.statements().enter(id, call.issuer(), sql);
        let span = tracing::info_span!(
            "statement",
            query_id = %id,
            session = %call.session.engine.id(),
            user = %call.principal.name,
        );
        let logged = async {
            listed
                .unless_ended(work, call.deadline.passes())
                .await
                .inspect_err(|error| tracing::debug!(%error, "the statement failed"))
        };
        match logged.instrument(span).await {
            Ok(done) => {
                listed.answered();
                Ok(done)
            }
            Err(error) => {
                let error = with_query(error, id);
                listed.failed(&error);
                Err(error)
            }
        }
    }

    /// Reads the headers of a call.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for wrong credentials, `INVALID_ARGUMENT` for an option that does not exist.
    pub(super) fn call<T>(&self, request: &Request<T>) -> Result<Call> {
        let metadata = request.metadata();
        let credentials = auth::credentials(metadata)?;
        let principal = auth::authenticate(&credentials)?;
        let session_token = shown_token(&credentials, metadata);
        let peer = request.remote_addr();
        let mut session = self.sessions.of(session_token.as_ref());
        if session_token.is_none() {
            // It has another session at each call, and waits as one all the same.
            let caller = peer.map_or(Caller::Unknown, Caller::Connection);
            session.engine = session.engine.called_by(caller);
        }
        let profile = match profile_header(metadata)? {
            Some(profile) => profile,
            None => session.profile().unwrap_or_default(),
        };
        let deadline = Deadline::of(metadata, self.config.query.timeout)
            .within(session.engine.statement_timeout());
        Ok(Call {
            credentials,
            principal,
            session,
            session_token,
            profile,
            deadline,
            peer,
        })
    }

    /// The answer to a call. It tells a client that has named no session by what to name it from now on.
    pub(super) fn respond<T>(&self, call: &Call, message: T) -> Result<Response<T>> {
        let mut response = Response::new(message);
        if call.session_token.is_none() {
            let token = self.sessions.name(&call.session);
            announce_session(response.metadata_mut(), &call.credentials, &token)?;
        }
        Ok(response)
    }
}

/// The session that a call names: its bearer token's, else its cookie's.
pub(super) fn shown_token(
    credentials: &Credentials,
    metadata: &MetadataMap,
) -> Option<SessionToken> {
    match credentials {
        Credentials::Bearer(token) => SessionToken::parse(token),
        Credentials::Basic { .. } | Credentials::None => None,
    }
    .or_else(|| cookie::session_token(metadata))
}

/// Puts a session's token into the headers of an answer: as a cookie, and as the bearer token of a client that shows no
/// credentials. Others keep theirs, which drivers would replace.
pub(super) fn announce_session(
    metadata: &mut MetadataMap,
    credentials: &Credentials,
    token: &SessionToken,
) -> Result<()> {
    metadata.insert("set-cookie", header(&cookie::of_session(token))?);
    if *credentials == Credentials::None {
        announce_bearer(metadata, token)?;
    }
    Ok(())
}

/// Makes a session's token the client's bearer token.
pub(super) fn announce_bearer(metadata: &mut MetadataMap, token: &SessionToken) -> Result<()> {
    let value = format!("Bearer {}", token.as_str());
    metadata.insert(AUTHORIZATION, header(&value)?);
    Ok(())
}

fn header(value: &str) -> Result<MetadataValue<tonic::metadata::Ascii>> {
    MetadataValue::try_from(value)
        .map_err(|_| Error::internal("a session's token cannot be a header"))
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

#[cfg(test)]
mod tests {
    use super::*;

    fn told(credentials: &Credentials) -> (SessionToken, MetadataMap) {
        let (token, mut metadata) = (SessionToken::new(), MetadataMap::new());
        announce_session(&mut metadata, credentials, &token).unwrap();
        (token, metadata)
    }

    #[test]
    fn a_client_without_credentials_takes_its_session_from_either_header() {
        let (token, answer) = told(&Credentials::None);
        let bearer = auth::credentials(&answer).unwrap();
        assert_eq!(
            shown_token(&bearer, &MetadataMap::new()),
            Some(token.clone())
        );
        let mut next = MetadataMap::new();
        next.insert("cookie", answer.get("set-cookie").unwrap().clone());
        assert_eq!(shown_token(&Credentials::None, &next), Some(token));
    }

    #[test]
    fn an_api_key_stays_and_the_cookie_names_the_session() {
        let key = Credentials::Bearer("key".to_owned());
        assert_eq!(shown_token(&key, &MetadataMap::new()), None);
        let (token, answer) = told(&key);
        assert!(answer.get(AUTHORIZATION).is_none());
        let mut next = MetadataMap::new();
        next.insert("cookie", answer.get("set-cookie").unwrap().clone());
        assert_eq!(shown_token(&key, &next), Some(token));
    }

    #[test]
    fn the_token_of_the_handshake_counts_more_than_a_cookie() {
        let (token, other) = (SessionToken::new(), SessionToken::new());
        let mut metadata = MetadataMap::new();
        metadata.insert("cookie", header(&cookie::of_session(&other)).unwrap());
        let credentials = Credentials::Bearer(token.as_str().to_owned());
        assert_eq!(shown_token(&credentials, &metadata), Some(token));
    }
}
