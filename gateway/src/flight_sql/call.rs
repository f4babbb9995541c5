//! What the headers of a call say: who calls, in which session, with which types, until when. And what those of its answer say.

use std::future::Future;
use std::net::SocketAddr;

use tonic::metadata::{MetadataMap, MetadataValue};
use tonic::{Request, Response};
use tracing::Instrument;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::auth::{self, AUTHORIZATION};
use super::client_option::option_header;
use super::direct_option::{DIRECT_RESULTS_OPTION, DirectResults};
use super::gate::caller;
use super::sessions::{ClientSession, SessionToken};
use super::stream::with_query;
use super::types::{PROFILE_OPTION, Profile};
use super::{FlightSql, cookie};
use crate::engine::Caller;
use crate::login::{Credentials, Principal};
use crate::statements::Issuer;
use volary_node::deadline::Deadline;

/// One call of a client.
#[derive(Debug)]
pub(super) struct Call {
    /// What the client showed.
    pub(super) credentials: Credentials,
    /// Who that is, and what it may do.
    pub(super) principal: Principal,
    /// Its session.
    pub(super) session: ClientSession,
    /// By what the client named it; `None` if it named none, and the session is one for this call.
    pub(super) session_token: Option<SessionToken>,
    /// The types that the client is sent.
    pub(super) profile: Profile,
    /// Whether the client fetches rows from the workers itself, where that is possible.
    pub(super) direct_results: DirectResults,
    /// When the call has to end.
    pub(super) deadline: Deadline,
    /// Where the client is.
    pub(super) peer: Option<SocketAddr>,
    /// By what the client will find its statement again.
    tag: Option<String>,
}

impl Call {
    /// Who has sent its statements.
    pub(super) fn issuer(&self) -> Issuer {
        Issuer {
            user: self.principal.name().to_owned(),
            session: self.session.engine.id(),
            client: self.peer,
            tag: self.tag.clone(),
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
            user = call.principal.name(),
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

    /// Reads the headers of a call, and finds out whose it is.
    ///
    /// # Errors
    /// `UNAUTHENTICATED` for wrong credentials, `INVALID_ARGUMENT` for an option that does not exist.
    pub(super) fn call<'a, T>(
        &'a self,
        request: &Request<T>,
    ) -> impl Future<Output = Result<Call>> + Send + use<'a, T> {
        // What is streamed by the client cannot be held over a wait.
        let shown = self.shown(request);
        async { self.called(shown?).await }
    }

    fn shown<T>(&self, request: &Request<T>) -> Result<Shown> {
        let metadata = request.metadata();
        Ok(Shown {
            caller: match caller(request.extensions()) {
                Some(known) => Ok(known?),
                None => Err(self.login.newest(
                    auth::credentials(metadata)?,
                    cookie::bearer_token(metadata.as_ref()),
                )),
            },
            cookie: cookie::session_token(metadata.as_ref()),
            profile: option_header(metadata, PROFILE_OPTION)?,
            direct_results: option_header(metadata, DIRECT_RESULTS_OPTION)?,
            deadline: Deadline::of(metadata, self.config.query.timeout),
            peer: request.remote_addr(),
            tag: tag_header(metadata)?,
        })
    }

    async fn called(&self, shown: Shown) -> Result<Call> {
        let Shown {
            caller,
            cookie,
            profile,
            direct_results,
            deadline,
            peer,
            tag,
        } = shown;
        let (credentials, principal) = match caller {
            Ok(known) => known,
            Err(credentials) => {
                let principal = self.login.principal(&credentials, peer).await?;
                (credentials, principal)
            }
        };
        let session_token = session_of(&principal).or(cookie);
        let mut session = self.sessions.of(&principal.rights, session_token.as_ref());
        if session_token.is_none() {
            // It has another session at each call, and waits as one all the same.
            let caller = peer.map_or(Caller::Unknown, Caller::Connection);
            session.engine = session.engine.called_by(caller);
        }
        let profile = profile.or_else(|| session.profile()).unwrap_or_default();
        let direct_results = direct_results.or_else(|| session.direct_results());
        let deadline = deadline.within(session.engine.statement_timeout());
        Ok(Call {
            credentials,
            principal,
            session,
            session_token,
            profile,
            direct_results: direct_results.unwrap_or_default(),
            deadline,
            peer,
            tag,
        })
    }

    /// The answer to a call. It tells a client that has named no session by what to name it from now on, and one whose token is about to
    /// expire another one.
    pub(super) fn respond<T>(&self, call: &Call, message: T) -> Result<Response<T>> {
        let mut response = Response::new(message);
        if call.session_token.is_none() {
            let token = self.sessions.name(&call.session);
            self.announce_session(response.metadata_mut(), call, &token)?;
        }
        self.renew_bearer(response.metadata_mut(), call)?;
        Ok(response)
    }

    /// Tells a client another token, if its own is about to expire: as drivers take it that replace theirs, and as a cookie.
    pub(super) fn renew_bearer(&self, metadata: &mut MetadataMap, call: &Call) -> Result<()> {
        match &call.session_token {
            Some(session) if call.principal.is_due => {
                let bearer = self.announce_bearer(metadata, &call.principal, session)?;
                metadata.append("set-cookie", header(&cookie::of_bearer(&bearer))?);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Puts a session's token into the headers of an answer: as a cookie, and as the bearer token of a client that shows no
    /// credentials. Others keep theirs, which drivers would replace.
    pub(super) fn announce_session(
        &self,
        metadata: &mut MetadataMap,
        call: &Call,
        token: &SessionToken,
    ) -> Result<()> {
        metadata.insert("set-cookie", header(&cookie::of_session(token))?);
        if call.credentials == Credentials::None {
            self.announce_bearer(metadata, &call.principal, token)?;
        }
        Ok(())
    }

    /// Makes a session's token the client's bearer token, which is returned.
    pub(super) fn announce_bearer(
        &self,
        metadata: &mut MetadataMap,
        principal: &Principal,
        session: &SessionToken,
    ) -> Result<String> {
        let bearer = self.login.bearer(principal, session.as_str());
        metadata.insert(AUTHORIZATION, header(&auth::bearer_header(&bearer))?);
        Ok(bearer)
    }
}

/// What the headers of a call say.
struct Shown {
    /// Who calls; what it shows where nobody has asked so far.
    caller: std::result::Result<(Credentials, Principal), Credentials>,
    cookie: Option<SessionToken>,
    profile: Option<Profile>,
    direct_results: Option<DirectResults>,
    deadline: Deadline,
    peer: Option<SocketAddr>,
    tag: Option<String>,
}

/// The session that a bearer token continues.
fn session_of(principal: &Principal) -> Option<SessionToken> {
    SessionToken::parse(principal.session.as_deref()?)
}

pub(super) fn header(value: &str) -> Result<MetadataValue<tonic::metadata::Ascii>> {
    MetadataValue::try_from(value)
        .map_err(|_| Error::internal("a session's token cannot be a header"))
}

/// The header that says by what a statement is found in system.queries and system.query_log.
const TAG_HEADER: &str = "volary-query-tag";

/// Each statement that is listed has one.
const MAX_TAG_BYTES: usize = 128;

fn tag_header(metadata: &MetadataMap) -> Result<Option<String>> {
    let Some(value) = metadata.get(TAG_HEADER) else {
        return Ok(None);
    };
    match value.to_str() {
        Ok(tag) if tag.len() <= MAX_TAG_BYTES => Ok(Some(tag.to_owned())),
        _ => Err(Error::invalid(format!(
            "the header {TAG_HEADER} takes printable ASCII, {MAX_TAG_BYTES} bytes at most"
        ))),
    }
}
