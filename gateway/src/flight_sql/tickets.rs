//! A client's ticket contains all that is needed to redeem it. It is therefore valid on every
//! gateway and from any connection, any number of times until it expires. The plan that was made
//! for the FlightInfo is kept for a short time. The DoGet normally follows at once, and then does
//! not have to plan again.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use arrow_flight::{FlightEndpoint, Location, Ticket};
use bytes::Bytes;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use parking_lot::Mutex;
use prost_types::Timestamp;
use tokio::sync::{Semaphore, SemaphorePermit};
use volary_catalog::access::Access;
use volary_flight_proto::direct::DirectTicket;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::ticket::{FragmentTicket, PreparedStatementHandle, QueryTicket};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::config;
use crate::engine::PlannedQuery;
use crate::login::Principal;

/// Estimated memory of the plan of an empty statement, in bytes.
const PLAN_BYTES: usize = 16 << 10;
/// Estimated memory of a plan for each byte of its statement. An expression of a few characters
/// takes some hundred bytes in the plan, once for each operator that it passes.
const PLAN_BYTES_PER_STATEMENT_BYTE: usize = 128;

/// Time that a plan is kept. If a client asks for rows later, it has to wait until the query is
/// planned again.
const PLAN_LIFETIME: Duration = Duration::from_secs(60);

/// Number of queries for which the result of the rights check is remembered. A forgotten query is
/// checked again when its ticket is redeemed.
const MAX_ADMITTED: u64 = 10_000;

/// The location that tells a client to use the connection on which it received the ticket (Flight's
/// `ReuseConnection`).
const REUSE_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// Lifetime of the handles of prepared statements. It is long, because connection pools keep
/// handles for days. A handle allows nothing that the client could not send itself.
const HANDLE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Seals and opens tickets and handles, and keeps plans.
#[derive(Debug)]
pub(super) struct Tickets {
    sealer: Sealer,
    lifetime: Duration,
    plans: Cache<QueryId, KeptPlan>,
    /// Queries whose parts clients may fetch from workers, each with the users and rights for which
    /// this was checked.
    admitted: Cache<QueryId, Arc<Access>>,
    planning_turn: Semaphore,
    /// Maximum number of bytes for which a plan counts in the cache. The cache would not keep a
    /// larger plan at all.
    max_plan_bytes: usize,
}

#[derive(Debug, Clone)]
struct KeptPlan {
    query: Arc<Mutex<Option<PlannedQuery>>>,
    /// The user that the plan was made for.
    user: String,
    /// Estimated memory of the plan.
    bytes: u32,
}

impl Tickets {
    /// Creates the tickets of a gateway. `sealer` has a key that only gateways know. So clients
    /// learn nothing from their tickets about the key with which nodes trust each other.
    pub(super) fn new(sealer: Sealer, config: &config::Query) -> Self {
        Self {
            sealer,
            lifetime: config.ticket_lifetime,
            max_plan_bytes: config.kept_plans.bytes() / 4,
            planning_turn: Semaphore::new(1),
            admitted: Cache::builder()
                .max_capacity(MAX_ADMITTED)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(config.ticket_lifetime)
                .build(),
            plans: Cache::builder()
                .max_capacity(config.kept_plans.bytes() as u64)
                .weigher(|_, plan: &KeptPlan| plan.bytes)
                .time_to_live(PLAN_LIFETIME.min(config.ticket_lifetime))
                .build(),
        }
    }

    /// Seals a ticket for the client. Returns an endpoint that says when the ticket expires. A
    /// result has only this endpoint, because some clients read only the first one. It has no
    /// location, because this gateway has the plan.
    pub(super) fn endpoint(&self, ticket: &QueryTicket) -> FlightEndpoint {
        self.expiring_endpoint(self.sealer.seal(Purpose::Query, ticket, self.lifetime))
    }

    fn expiring_endpoint(&self, sealed: Bytes) -> FlightEndpoint {
        let expires = SystemTime::now().checked_add(self.lifetime);
        FlightEndpoint {
            expiration_time: expires.map(Timestamp::from),
            ..FlightEndpoint::new().with_ticket(Ticket::new(sealed))
        }
    }

    /// Opens a client's ticket.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `PERMISSION_DENIED` or `DEADLINE_EXCEEDED`: see [`Sealer::open`].
    /// `PERMISSION_DENIED` for a ticket of another user.
    pub(super) fn open(&self, by: &Principal, ticket: &Ticket) -> Result<QueryTicket> {
        if is_direct(&ticket.ticket) {
            return Ok(self.open_part(by, &ticket.ticket)?.0);
        }
        let opened: QueryTicket = self.sealer.open(Purpose::Query, &ticket.ticket)?;
        check_bound(by, "ticket", &opened.user)?;
        Ok(opened)
    }

    /// Seals tickets for the parts of a query. Each is returned as an endpoint with two locations:
    /// the worker, and the connection to this gateway for clients that cannot reach the worker.
    pub(super) fn direct_endpoints(
        &self,
        tickets: impl IntoIterator<Item = (DirectTicket, String)>,
    ) -> Vec<FlightEndpoint> {
        let endpoints = tickets.into_iter().map(|(ticket, uri)| {
            let sealed = self.sealer.seal(Purpose::Direct, &ticket, self.lifetime);
            self.expiring_endpoint(sealed)
                .with_location(uri)
                .with_location(REUSE_CONNECTION)
        });
        endpoints.collect()
    }

    /// Opens a ticket for a part of a query. Returns the query and the part.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(super) fn open_part(
        &self,
        by: &Principal,
        ticket: &[u8],
    ) -> Result<(QueryTicket, FragmentTicket)> {
        let opened = self.open_direct_ticket(by, ticket)?;
        opened.query.zip(opened.part).ok_or_else(incomplete_ticket)
    }

    /// Opens a ticket for a part of a query. Returns its whole content.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(super) fn open_direct_ticket(&self, by: &Principal, ticket: &[u8]) -> Result<DirectTicket> {
        let opened: DirectTicket = self.sealer.open(Purpose::Direct, ticket)?;
        let query = opened.query.as_ref().ok_or_else(incomplete_ticket)?;
        check_bound(by, "ticket", &query.user)?;
        Ok(opened)
    }

    /// Seals the same ticket again, with a lifetime that starts now. Only the endpoint of a part of
    /// a query has the locations `locations`.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(super) fn renew_endpoint(
        &self,
        by: &Principal,
        ticket: &Ticket,
        locations: Vec<Location>,
    ) -> Result<FlightEndpoint> {
        let query = self.open(by, ticket)?;
        if !is_direct(&ticket.ticket) {
            return Ok(self.endpoint(&query));
        }
        let direct: DirectTicket = self.sealer.open(Purpose::Direct, &ticket.ticket)?;
        let sealed = self.sealer.seal(Purpose::Direct, &direct, self.lifetime);
        Ok(FlightEndpoint {
            location: locations,
            ..self.expiring_endpoint(sealed)
        })
    }

    /// Waits for the turn to check whether a query may still be run. Only one caller has the turn
    /// at a time.
    pub(super) async fn acquire_planning_turn(&self) -> Option<SemaphorePermit<'_>> {
        self.planning_turn.acquire().await.ok()
    }

    /// Notes that the user who planned the query may run it, with these users and rights.
    pub(super) fn admit(&self, id: QueryId, access: &Arc<Access>) {
        self.admitted.insert(id, Arc::clone(access));
    }

    /// Returns whether [`Self::admit`] was called for the query with these users and rights.
    pub(super) fn is_admitted(&self, id: QueryId, access: &Arc<Access>) -> bool {
        let admitted = self.admitted.get(&id);
        admitted.is_some_and(|admitted| Arc::ptr_eq(&admitted, access))
    }

    /// Opens a ticket for a query. Returns `None` if the ticket is for a metadata command, or holds
    /// its rows itself.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(super) fn open_query(
        &self,
        by: &Principal,
        ticket: &Ticket,
    ) -> Result<Option<(QueryId, QueryTicket)>> {
        let ticket = self.open(by, ticket)?;
        if ticket.command.is_some() || ticket.result.is_some() {
            return Ok(None);
        }
        Ok(Some((ticket.query_id.parse()?, ticket)))
    }

    /// Seals a handle for the client.
    pub(super) fn seal_handle(&self, handle: &PreparedStatementHandle) -> Bytes {
        self.sealer
            .seal(Purpose::PreparedStatement, handle, HANDLE_LIFETIME)
    }

    /// Opens a client's handle.
    ///
    /// # Errors
    /// The errors of [`Self::open`].
    pub(super) fn open_handle(
        &self,
        by: &Principal,
        handle: &[u8],
    ) -> Result<PreparedStatementHandle> {
        let opened: PreparedStatementHandle =
            self.sealer.open(Purpose::PreparedStatement, handle)?;
        check_bound(by, "prepared statement", &opened.user)?;
        Ok(opened)
    }

    /// Keeps a plan until it is taken, for a minute at most. `statement_bytes` is the length of the
    /// statement and its parameters.
    pub(super) fn keep_plan(&self, by: &Principal, query: PlannedQuery, statement_bytes: usize) {
        let bytes = PLAN_BYTES
            .saturating_add(statement_bytes.saturating_mul(PLAN_BYTES_PER_STATEMENT_BYTE));
        let id = query.id;
        let kept = KeptPlan {
            query: Arc::new(Mutex::new(Some(query))),
            user: by.ticket_user().to_owned(),
            bytes: u32::try_from(bytes.min(self.max_plan_bytes)).unwrap_or(u32::MAX),
        };
        self.plans.insert(id, kept);
    }

    /// Takes out a plan of this user. It is run once: a second DoGet plans again.
    pub(super) fn take_plan(&self, by: &Principal, id: QueryId) -> Option<PlannedQuery> {
        let kept = self.plans.get(&id)?;
        if kept.user != by.ticket_user() {
            return None;
        }
        self.plans.invalidate(&id);
        kept.query.lock().take()
    }

    /// Forgets a plan of this user, or of any user if an administrator asks. Returns false if there
    /// is no such plan.
    pub(super) fn forget_plan(&self, by: &Principal, id: QueryId) -> bool {
        let is_theirs =
            |kept: &KeptPlan| by.rights.is_unrestricted() || kept.user == by.ticket_user();
        let Some(kept) = self.plans.get(&id).filter(is_theirs) else {
            return false;
        };
        self.plans.invalidate(&id);
        kept.query.lock().take().is_some()
    }
}

/// Returns whether a ticket is for a part of a query.
pub(super) fn is_direct(ticket: &[u8]) -> bool {
    Sealer::claims_purpose(Purpose::Direct, ticket)
}

fn incomplete_ticket() -> Error {
    Error::invalid(
        "the ticket is for a part of a query, but does not say which part; run the query again",
    )
}

fn check_bound(by: &Principal, what: &str, user: &str) -> Result<()> {
    if user == by.ticket_user() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::PermissionDenied,
        format!("the {what} was made for another user; run the statement yourself"),
    ))
}
