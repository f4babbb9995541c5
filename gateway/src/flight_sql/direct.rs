//! A client that asks for direct results fetches all parts at the same time, and the rows do not
//! pass the gateway.
//!
//! A result can be direct only if it is the workers' rows as they are. Either the rows are
//! filtered, computed, joined or grouped on the shards and may come in any order, or all of them
//! come from one worker. Other results, such as the rows of several workers in an order or with a
//! limit, come from the gateway as usual.
//!
//! The ticket of each endpoint can be redeemed at its worker and at every gateway, any number of
//! times until it expires. Only gateways know users. A worker therefore asks a gateway who its
//! client is, and whether the client may still run the query ([`FlightSql::introduce`]).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use arrow::datatypes::Schema;
use arrow_flight::{FlightDescriptor, FlightInfo, Ticket};
use bytes::Bytes;
use prost::Message;
use tonic::Response;
use url::{Host, Url};
use volary_exec::client_rows::ClientMessages;
use volary_flight_proto::direct::{DirectTicket, Introduced, Introduction};
use volary_flight_proto::ids::{QueryId, WorkerId};
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::ticket::QueryTicket;
use volary_flight_proto::{Result, ipc};

use super::auth::{self, AUTHORIZATION};
use super::call::{ClientCall, header_value};
use super::sessions::SessionToken;
use super::statement::{bind_ticket, take_profile, take_session};
use super::stream::with_query_id;
use super::ticket_reads::{reads_of, session_of};
use super::{FlightSql, arrow_error};
use crate::engine::{PlannedQuery, Session};
use crate::login::{Credentials, Principal};

/// Maximum size of all tickets of a query together. They are sent in one FlightInfo, which is one
/// message, and clients accept messages of up to 16 MiB.
const MAX_TICKETS_BYTES: usize = 8 << 20;

/// Time until the answer to a worker's question expires.
const ANSWER_LIFETIME: Duration = Duration::from_secs(60);

impl FlightSql {
    /// Returns a FlightInfo with an endpoint for each worker's part of the query. Returns `None` if
    /// the rows have to come from the gateway.
    pub(super) fn direct_info(
        &self,
        call: &ClientCall,
        query: &PlannedQuery,
        announced: &Schema,
        ticket: &QueryTicket,
        descriptor: &FlightDescriptor,
    ) -> Result<Option<FlightInfo>> {
        let Some(parts) = query.worker_tickets()? else {
            tracing::debug!(
                "no direct results: the gateway merges the rows, or puts them in order"
            );
            return Ok(None);
        };
        if parts.is_empty() || parts.len() > self.config.query.max_direct_workers {
            tracing::debug!(
                workers = parts.len(),
                "no direct results from so many workers"
            );
            return Ok(None);
        }
        let query_ticket = bind_ticket(call, ticket.clone());
        let announced_bytes = ipc::schema_to_bytes(announced);
        let shared_bytes = query_ticket.encoded_len() + announced_bytes.len();
        let bytes = parts.iter().map(|part| part.encoded_len() + shared_bytes);
        // The size is checked before the tickets are made. For thousands of workers, the tickets of
        // a long statement would take gigabytes.
        if bytes.sum::<usize>() > MAX_TICKETS_BYTES {
            tracing::debug!("no direct results: their tickets are too large");
            return Ok(None);
        }
        let timeout = self.part_timeout(&call.session.engine);
        let mut tickets = Vec::with_capacity(parts.len());
        for part in parts {
            let worker = WorkerId(part.worker_id);
            let uri = self.cluster.clients_uri(worker);
            let Some(uri) = uri.filter(|uri| self.can_reach(uri, call.peer)) else {
                tracing::debug!(%worker, "no direct results: the client cannot reach the worker");
                return Ok(None);
            };
            let ticket = DirectTicket {
                query: Some(query_ticket.clone()),
                part: Some(part),
                announced: announced_bytes.clone(),
                timeout_ms: u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX),
            };
            tickets.push((ticket, uri));
        }
        let endpoints = self.tickets.direct_endpoints(tickets);
        self.tickets.admit(query.id, &query.access);
        // The gateway's own part of the query is done.
        let statements = self.engine.statements();
        query.note(&statements.progress(query.id));
        statements.set_done(query.id, 0);
        let info = FlightInfo::new()
            .try_with_schema(announced)
            .map_err(arrow_error)?
            .with_descriptor(descriptor.clone())
            .with_app_metadata(ticket.query_id.clone())
            .with_ordered(endpoints.len() == 1);
        Ok(Some(FlightInfo {
            endpoint: endpoints,
            ..info
        }))
    }

    /// Returns whether the client can fetch rows from the worker with this URI. A worker at a
    /// loopback address can be reached only from the gateway's own machine. If the gateway uses
    /// TLS, its clients are not sent to a worker without TLS.
    fn can_reach(&self, uri: &str, client: Option<SocketAddr>) -> bool {
        let Ok(uri) = Url::parse(uri) else {
            return false;
        };
        if self.config.tls.certificate.is_some() && !uri.scheme().ends_with("+tls") {
            return false;
        }
        // Without users, the login lets in only clients on the gateway's own machine. A worker on
        // another machine would see such a client at an address that the login refuses.
        let admits_remote_clients =
            self.engine.access().has_users() || self.config.security.allow_anonymous;
        let is_local_client = client.is_some_and(|client| client.ip().to_canonical().is_loopback());
        if is_loopback(&uri) {
            is_local_client
        } else {
            admits_remote_clients
        }
    }

    /// Returns how long a worker may take for a part.
    fn part_timeout(&self, session: &Session) -> Duration {
        let gateway_timeout = self.config.query.timeout;
        session
            .statement_timeout()
            .map_or(gateway_timeout, |timeout| timeout.min(gateway_timeout))
    }

    /// Returns the rows of a part, which the gateway fetches from the part's worker.
    pub(super) async fn redeem_part(
        &self,
        call: &ClientCall,
        ticket: &Ticket,
    ) -> Result<ClientMessages> {
        let (mut query, part) = self.tickets.open_part(&call.principal, &ticket.ticket)?;
        let id: QueryId = query.query_id.parse()?;
        let profile = take_profile(&mut query)?;
        let session = take_session(call, &mut query);
        let deadline = call
            .deadline
            .with_session_timeout(session.statement_timeout());
        let statements = self.engine.statements();
        let listed = statements.add(id, call.issuer_of_ticket(&query.trace), &query.sql);
        // Planning again checks whether the caller may still run the query, and whether the tables
        // are still the same.
        let planning = self.plan_again(id, &session, query);
        let planned = listed
            .run_until_ended(planning, deadline.wait_expired())
            .await;
        let query = planned
            .and_then(|query| query.into_part(part))
            .map_err(|error| with_query_id(error, id))
            .inspect_err(|error| listed.set_failed(error))?;
        Ok(self.open_stream(listed, query, profile, deadline))
    }

    /// Answers a worker that asks who a client is, whether the client may redeem a ticket, and what
    /// the ticket says. Returns the body of the answer.
    ///
    /// # Errors
    /// Errors for the client: `UNAUTHENTICATED`, `PERMISSION_DENIED`, and `NOT_FOUND` for a table
    /// that was dropped. `PERMISSION_DENIED` for a question that no worker of the cluster has
    /// sealed.
    pub(super) async fn introduce(&self, body: &Bytes) -> Result<Bytes> {
        let sealer = self.cluster.sealer();
        let introduction: Introduction = sealer.open(Purpose::Introduction, body)?;
        let credentials = auth::parse_authorization(introduction.authorization.as_deref())?;
        let peer = introduction.peer.parse().ok();
        let principal = self.login.identify(&credentials, peer).await?;
        let mut introduced = Introduced {
            user: principal.name().to_owned(),
            ..Introduced::default()
        };
        if !introduction.ticket.is_empty() {
            let opened = self
                .tickets
                .open_direct_ticket(&principal, &introduction.ticket)?;
            self.check_permission(&principal, &opened).await?;
            introduced.ticket = Some(opened);
        } else if matches!(credentials, Credentials::Basic { .. }) {
            let session = SessionToken::new();
            let bearer = self.login.bearer_token(&principal, session.as_str());
            introduced.authorization = Some(auth::bearer_header(&bearer));
        }
        Ok(sealer.seal(Purpose::IntroductionAnswer, &introduced, ANSWER_LIFETIME))
    }

    /// Refuses a ticket if its user may not run its query any more.
    async fn check_permission(&self, principal: &Principal, ticket: &DirectTicket) -> Result<()> {
        let mut query = ticket.query.clone().unwrap_or_default();
        let id: QueryId = query.query_id.parse()?;
        if self.tickets.is_admitted(id, &self.engine.access()) {
            return self.engine.refuse_changes(&reads_of(&query));
        }
        // Thousands of workers may ask about one query at the same time. Only the first question
        // plans the query, and its result serves the others.
        let _turn = self.tickets.acquire_planning_turn().await;
        if self.tickets.is_admitted(id, &self.engine.access()) {
            return self.engine.refuse_changes(&reads_of(&query));
        }
        take_profile(&mut query)?;
        let settings = std::mem::take(&mut query.settings);
        let session = Session::new(settings, Arc::clone(&principal.rights))
            .with_temporary_session(session_of(&query));
        let planned = self.plan_again(id, &session, query).await?;
        self.tickets.admit(id, &planned.access);
        Ok(())
    }
}

/// Sends a client its own token again, if the FlightInfo has locations. JDBC then logs in at
/// workers with the token instead of its password.
pub(super) fn repeat_bearer(call: &ClientCall, response: &mut Response<FlightInfo>) -> Result<()> {
    let has_locations = |info: &FlightInfo| {
        let mut endpoints = info.endpoint.iter();
        endpoints.any(|endpoint| !endpoint.location.is_empty())
    };
    if let Credentials::Bearer(token) = &call.credentials
        && has_locations(response.get_ref())
        && !response.metadata().contains_key(AUTHORIZATION)
    {
        let value = header_value(&auth::bearer_header(token))?;
        response.metadata_mut().insert(AUTHORIZATION, value);
    }
    Ok(())
}

fn is_loopback(uri: &Url) -> bool {
    // If the parser does not know the scheme of a URL, it returns an IPv4 address as a domain name.
    match uri.host() {
        Some(Host::Ipv4(ip)) => ip.is_loopback(),
        Some(Host::Ipv6(ip)) => ip.is_loopback(),
        Some(Host::Domain(name)) => {
            name.eq_ignore_ascii_case("localhost")
                || name.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
        }
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_of_the_same_machine_is_one_however_it_is_written() {
        for (uri, is_one) in [
            ("grpc://127.0.0.1:7200", true),
            ("grpc+tls://127.1.2.3:7200", true),
            ("grpc://[::1]:7200", true),
            ("grpc://localhost:7200", true),
            ("grpc://10.0.0.1:7200", false),
            ("grpc+tls://worker-1.example:7200", false),
        ] {
            let parsed = Url::parse(uri).unwrap();
            assert_eq!(is_loopback(&parsed), is_one, "{uri}");
        }
    }
}
