use std::future::Future;
use std::net::SocketAddr;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response};
use tracing::Instrument;
use volary_catalog::ProducerName;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::trace::TraceParent;
use volary_flight_proto::{Error, Result};

use super::auth::{self, AUTHORIZATION};
use super::client_gate::admitted_caller;
use super::client_option::option_header;
use super::direct_option::{DIRECT_RESULTS_OPTION, DirectResults};
use super::sessions::{ClientSession, SessionToken};
use super::stream::with_query_id;
use super::{FlightSql, cookie};
use crate::client_types::{PROFILE_OPTION, TypeProfile};
use crate::engine::Caller;
use crate::login::{Credentials, Principal};
use crate::statements::Issuer;
use volary_node::deadline::Deadline;

/// A call of a client.
#[derive(Debug)]
pub(super) struct ClientCall {
    /// The credentials that the client showed.
    pub(super) credentials: Credentials,
    /// The caller and its rights.
    pub(super) principal: Principal,
    /// The session of the client.
    pub(super) session: ClientSession,
    /// The token with which the client named its session. It is `None` if the client named no
    /// session. The session is then new, and is kept only if the call changes it.
    pub(super) session_token: Option<SessionToken>,
    /// The types in which the client is sent rows.
    pub(super) profile: TypeProfile,
    /// Says whether the client fetches rows from the workers itself, where that is possible.
    pub(super) direct_results: DirectResults,
    /// Deadline of the call.
    pub(super) deadline: Deadline,
    /// Address of the client.
    pub(super) peer: Option<SocketAddr>,
    /// The tag by which the client can find its statement in the system tables.
    tag: Option<String>,
    /// The span of the client that the call belongs to.
    trace: Option<TraceParent>,
}

impl ClientCall {
    /// Returns the issuer of the statements that this call sends.
    pub(super) fn issuer(&self) -> Issuer {
        Issuer {
            user: self.principal.name().to_owned(),
            session: self.session.engine.id(),
            client: self.peer,
            tag: self.tag.clone(),
            trace: self.trace,
        }
    }

    /// Returns the issuer of a query that was planned in an earlier call. Its trace continues in
    /// this call, unless the client says that this call belongs to another one. `planned_in` is the
    /// span in which it was planned, as its ticket says.
    pub(super) fn issuer_of_ticket(&self, planned_in: &[u8]) -> Issuer {
        Issuer {
            trace: self.trace.or_else(|| TraceParent::from_bytes(planned_in)),
            ..self.issuer()
        }
    }

    /// Refuses a statement whose change of the settings would be lost. A client that has named no
    /// session may ignore the session that the answer names, and its SET would then have no effect.
    /// Must be called after the statement was run.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the client has named no session and the session's settings were
    /// changed.
    pub(super) fn check_settings_persist(&self) -> Result<()> {
        if self.session_token.is_none() && !self.session.is_default() {
            return Err(Error::invalid(
                "SET would have no effect: this client names no session. Log in with a user name (a handshake), or let the client keep cookies (ADBC: adbc.flight.sql.rpc.with_cookie_middleware), and send the statement again",
            ));
        }
        Ok(())
    }
}

impl FlightSql {
    /// Does the work of one statement until the call's deadline, or until the statement is ended.
    /// All log lines and errors of the statement carry the query's id, even if the statement cannot
    /// be parsed. So a user who reports an error also reports the id that the operator has to look
    /// for.
    pub(super) async fn run_listed<T>(
        &self,
        call: &ClientCall,
        id: QueryId,
        sql: &str,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let listed = self.engine.statements().add(id, call.issuer(), sql);
        let span = tracing::info_span!(
            "statement",
            query_id = %id,
            session = %call.session.engine.id(),
            user = call.principal.name(),
        );
        listed.begin_trace(&span);
        let logged = async {
            listed
                .run_until_ended(work, call.deadline.wait_expired())
                .await
                .inspect_err(|error| {
                    tracing::debug!(error = format_args!("{error:#}"), "the statement failed");
                })
        };
        match logged.instrument(span).await {
            Ok(done) => {
                listed.set_answered();
                Ok(done)
            }
            Err(error) => {
                let error = with_query_id(error, id);
                listed.set_failed(&error);
                Err(error)
            }
        }
    }

    /// Reads the headers of a call and identifies the caller.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for wrong credentials. `INVALID_ARGUMENT` if a header has a value that its
    /// option does not take.
    pub(super) fn read_call<'a, T>(
        &'a self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<ClientCall>> + Send + use<'a, T> {
        // The headers are read before the first `await`, because the stream of the client's
        // messages cannot be held across one.
        let headers = self.read_headers(request);
        async { self.identify_call(headers?).await }
    }

    fn read_headers<T>(&self, request: &Request<T>) -> Result<HeaderValues> {
        let metadata = request.metadata();
        Ok(HeaderValues {
            identity: match admitted_caller(request.extensions()) {
                Some(caller) => Ok(caller?),
                None => Err(self.login.newest_credentials(
                    auth::credentials(metadata)?,
                    cookie::bearer_token(metadata.as_ref()),
                )),
            },
            cookie: cookie::session_token(metadata.as_ref()),
            profile: option_header(metadata, PROFILE_OPTION)?,
            direct_results: option_header(metadata, DIRECT_RESULTS_OPTION)?,
            deadline: Deadline::from_metadata(metadata, self.config.query.timeout),
            peer: request.remote_addr(),
            tag: tag_header(metadata)?,
            batch_id: batch_id_header(metadata)?,
            trace: trace_header(metadata),
        })
    }

    async fn identify_call(&self, headers: HeaderValues) -> Result<ClientCall> {
        let HeaderValues {
            identity,
            cookie,
            profile,
            direct_results,
            deadline,
            peer,
            tag,
            batch_id,
            trace,
        } = headers;
        let (credentials, principal) = match identity {
            Ok(identified) => identified,
            Err(credentials) => {
                let principal = self.login.identify(&credentials, peer).await?;
                (credentials, principal)
            }
        };
        let session_token = continued_session(&principal).or(cookie);
        let mut session = self
            .sessions
            .get_or_create(&principal.rights, session_token.as_ref());
        if session_token.is_none() {
            // The client has a new session at each call. Its connection counts as the caller, so
            // that all of its statements wait in one queue.
            let caller = peer.map_or(Caller::Unknown, Caller::Connection);
            session.engine = session.engine.with_caller(caller);
        }
        session.engine = session.engine.with_batch_id(batch_id);
        let profile = profile.or_else(|| session.profile()).unwrap_or_default();
        let direct_results = direct_results.or_else(|| session.direct_results());
        let deadline = deadline.with_session_timeout(session.engine.statement_timeout());
        Ok(ClientCall {
            credentials,
            principal,
            session,
            session_token,
            profile,
            direct_results: direct_results.unwrap_or_default(),
            deadline,
            peer,
            tag,
            trace,
        })
    }

    /// Returns the answer to a call. A client that has named no session receives the token of one.
    /// A client whose bearer token is due for renewal receives a new one.
    pub(super) fn respond<T>(&self, call: &ClientCall, message: T) -> Result<Response<T>> {
        let mut response = Response::new(message);
        if call.session_token.is_none() {
            let token = self.sessions.issue_token(&call.session);
            self.announce_session(response.metadata_mut(), call, &token)?;
        }
        self.renew_bearer(response.metadata_mut(), call)?;
        Ok(response)
    }

    /// Sends a new bearer token to a client whose token is due for renewal. The new token is sent
    /// in the `authorization` header, for drivers that then replace theirs, and as a cookie.
    pub(super) fn renew_bearer(&self, metadata: &mut MetadataMap, call: &ClientCall) -> Result<()> {
        match &call.session_token {
            Some(session) if call.principal.is_renewal_due => {
                let bearer = self.announce_bearer(metadata, &call.principal, session)?;
                metadata.append("set-cookie", header_value(&cookie::bearer_cookie(&bearer))?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Puts the token of a session into the headers of an answer, as a cookie. A client that shows
    /// no credentials also receives a bearer token for the session. Other clients are not sent a
    /// bearer token, because drivers would replace their credentials with it.
    pub(super) fn announce_session(
        &self,
        metadata: &mut MetadataMap,
        call: &ClientCall,
        token: &SessionToken,
    ) -> Result<()> {
        metadata.insert("set-cookie", header_value(&cookie::session_cookie(token))?);
        if call.credentials == Credentials::None {
            self.announce_bearer(metadata, &call.principal, token)?;
        }
        Ok(())
    }

    /// Puts a new bearer token for a session into the `authorization` header. Returns the token.
    pub(super) fn announce_bearer(
        &self,
        metadata: &mut MetadataMap,
        principal: &Principal,
        session: &SessionToken,
    ) -> Result<String> {
        let bearer = self.login.bearer_token(principal, session.as_str());
        metadata.insert(AUTHORIZATION, header_value(&auth::bearer_header(&bearer))?);
        Ok(bearer)
    }
}

/// The content of a call's headers.
struct HeaderValues {
    /// The caller, if the gate has identified it. Otherwise the credentials, which nobody has
    /// checked yet.
    identity: std::result::Result<(Credentials, Principal), Credentials>,
    cookie: Option<SessionToken>,
    profile: Option<TypeProfile>,
    direct_results: Option<DirectResults>,
    deadline: Deadline,
    peer: Option<SocketAddr>,
    tag: Option<String>,
    batch_id: Option<ProducerName>,
    trace: Option<TraceParent>,
}

/// Returns the span of the client, if it names one.
fn trace_header(metadata: &MetadataMap) -> Option<TraceParent> {
    let header = metadata.get(TraceParent::HEADER)?;
    TraceParent::parse(header.to_str().ok()?)
}

/// Returns the token of the session that the caller's bearer token continues.
fn continued_session(principal: &Principal) -> Option<SessionToken> {
    SessionToken::parse(principal.session.as_deref()?)
}

pub(super) fn header_value(value: &str) -> Result<MetadataValue<tonic::metadata::Ascii>> {
    MetadataValue::try_from(value)
        .map_err(|_| Error::internal("a session's token cannot be a header"))
}

/// Header with the id that the client gives to a statement, so that it may send it again.
const BATCH_ID_HEADER: &str = "volary-batch-id";

fn batch_id_header(metadata: &MetadataMap) -> Result<Option<ProducerName>> {
    let Some(value) = metadata.get(BATCH_ID_HEADER) else {
        return Ok(None);
    };
    let what = format!("the header {BATCH_ID_HEADER}");
    // Text that is no header value is no name either.
    ProducerName::parse(&what, value.to_str().unwrap_or_default()).map(Some)
}

/// Header with the tag by which a statement is found in system.queries and system.query_log.
const TAG_HEADER: &str = "volary-query-tag";

/// Maximum length of a tag, in bytes. It is limited because each listed statement keeps its tag.
const MAX_TAG_BYTES: usize = 128;

fn tag_header(metadata: &MetadataMap) -> Result<Option<String>> {
    let Some(value) = metadata.get(TAG_HEADER) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(tag) if tag.len() <= MAX_TAG_BYTES => Ok(Some(tag.to_owned())),
        _ => Err(Error::invalid(format!(
            "the header {TAG_HEADER} must be printable ASCII of at most {MAX_TAG_BYTES} bytes"
        ))),
    }
}
