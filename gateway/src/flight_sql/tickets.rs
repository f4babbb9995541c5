//! Tickets that clients redeem, and the plans that wait for it.
//!
//! A ticket says everything itself, so it is valid on every gateway, from any connection, as often as it is shown until
//! it expires. The plan that was made for its FlightInfo is kept for a short while, so that the DoGet which normally
//! follows at once does not plan again.

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
use crate::engine::Query;
use crate::login::Principal;

/// What a plan takes, at least, and for each byte of its statement: an expression of a few characters is some hundred bytes in the
/// plan, once for each operator that it passes.
const PLAN_BYTES: usize = 16 << 10;
const PLAN_BYTES_PER_BYTE: usize = 128;

/// A client that asks for rows later than that waits for planning once more.
const PLAN_KEPT_FOR: Duration = Duration::from_secs(60);

/// Of a query that was forgotten it is found out again.
const MOST_ADMITTED: u64 = 10_000;

/// The location that means: where you have the ticket from (Flight's `ReuseConnection`).
const REUSE_CONNECTION: &str = "arrow-flight-reuse-connection://?";

/// Prepared statements hold no state and say nothing that the client could not say itself; connection pools keep them
/// for days.
const HANDLE_LIFETIME: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// Seals and opens tickets and handles, and keeps plans.
#[derive(Debug)]
pub(super) struct Tickets {
    sealer: Sealer,
    lifetime: Duration,
    plans: Cache<QueryId, KeptPlan>,
    /// Queries whose parts clients may fetch from workers, and by which rights that was found.
    admitted: Cache<QueryId, Arc<Access>>,
    planning: Semaphore,
    /// No plan counts more, or it would not be kept at all.
    most_bytes: usize,
}

#[derive(Debug, Clone)]
struct KeptPlan {
    query: Arc<Mutex<Option<Query>>>,
    /// Whose it is.
    user: String,
    /// What it takes, by estimate.
    bytes: u32,
}

impl Tickets {
    /// `sealer` has a key of the gateways' own: what clients hold gives nobody a hint at the key that nodes trust each other by.
    pub(super) fn new(sealer: Sealer, config: &config::Query) -> Self {
        Self {
            sealer,
            lifetime: config.ticket_lifetime,
            most_bytes: config.kept_plans.bytes() / 4,
            planning: Semaphore::new(1),
            admitted: Cache::builder()
                .max_capacity(MOST_ADMITTED)
                .eviction_policy(EvictionPolicy::lru())
                .time_to_live(config.ticket_lifetime)
                .build(),
            plans: Cache::builder()
                .max_capacity(config.kept_plans.bytes() as u64)
                .weigher(|_, plan: &KeptPlan| plan.bytes)
                .time_to_live(PLAN_KEPT_FOR.min(config.ticket_lifetime))
                .build(),
        }
    }

    /// A ticket for the client, as an endpoint without a location that says until when it may be redeemed: some clients read the first
    /// endpoint only, and this gateway knows the plan.
    pub(super) fn endpoint(&self, ticket: &QueryTicket) -> FlightEndpoint {
        self.expiring(self.sealer.seal(Purpose::Query, ticket, self.lifetime))
    }

    fn expiring(&self, sealed: Bytes) -> FlightEndpoint {
        let expires = SystemTime::now().checked_add(self.lifetime);
        FlightEndpoint {
            expiration_time: expires.map(Timestamp::from),
            ..FlightEndpoint::new().with_ticket(Ticket::new(sealed))
        }
    }

    /// What the client's ticket says.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, `PERMISSION_DENIED` or `DEADLINE_EXCEEDED`: see [`Sealer::open`]; `PERMISSION_DENIED` for another one's.
    pub(super) fn open(&self, by: &Principal, ticket: &Ticket) -> Result<QueryTicket> {
        if is_direct(&ticket.ticket) {
            return Ok(self.open_direct(by, &ticket.ticket)?.0);
        }
        let opened: QueryTicket = self.sealer.open(Purpose::Query, &ticket.ticket)?;
        check_bound(by, "ticket", &opened.user)?;
        Ok(opened)
    }

    /// Tickets for the parts of a query, as endpoints at these locations: the worker, and this gateway's connection for clients that
    /// cannot reach it.
    pub(super) fn direct_endpoints(
        &self,
        tickets: impl IntoIterator<Item = (DirectTicket, String)>,
    ) -> Vec<FlightEndpoint> {
        let endpoints = tickets.into_iter().map(|(ticket, uri)| {
            let sealed = self.sealer.seal(Purpose::Direct, &ticket, self.lifetime);
            self.expiring(sealed)
                .with_location(uri)
                .with_location(REUSE_CONNECTION)
        });
        endpoints.collect()
    }

    /// What a ticket for a part of a query says: the query, and the part.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub(super) fn open_direct(
        &self,
        by: &Principal,
        ticket: &[u8],
    ) -> Result<(QueryTicket, FragmentTicket)> {
        let opened = self.open_whole(by, ticket)?;
        opened.query.zip(opened.part).ok_or_else(says_of_nothing)
    }

    /// All that a ticket for a part of a query says.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub(super) fn open_whole(&self, by: &Principal, ticket: &[u8]) -> Result<DirectTicket> {
        let opened: DirectTicket = self.sealer.open(Purpose::Direct, ticket)?;
        let query = opened.query.as_ref().ok_or_else(says_of_nothing)?;
        check_bound(by, "ticket", &query.user)?;
        Ok(opened)
    }

    /// The same ticket, valid from now on, at the same places.
    ///
    /// # Errors
    /// Those of [`Self::open`].
    pub(super) fn renewed(
        &self,
        by: &Principal,
        ticket: &Ticket,
        at: Vec<Location>,
    ) -> Result<FlightEndpoint> {
        let query = self.open(by, ticket)?;
        if !is_direct(&ticket.ticket) {
            return Ok(self.endpoint(&query));
        }
        let direct: DirectTicket = self.sealer.open(Purpose::Direct, &ticket.ticket)?;
        let sealed = self.sealer.seal(Purpose::Direct, &direct, self.lifetime);
        Ok(FlightEndpoint {
            location: at,
            ..self.expiring(sealed)
        })
    }

    /// One after the other finds out of a query whether it may still be run.
    pub(super) async fn turn_to_plan(&self) -> Option<SemaphorePermit<'_>> {
        self.planning.acquire().await.ok()
    }

    /// Notes that who planned the query might, by these rights.
    pub(super) fn admit(&self, id: QueryId, access: &Arc<Access>) {
        self.admitted.insert(id, Arc::clone(access));
    }

    /// Whether that was found of the query by these rights.
    pub(super) fn is_admitted(&self, id: QueryId, access: &Arc<Access>) -> bool {
        let admitted = self.admitted.get(&id);
        admitted.is_some_and(|admitted| Arc::ptr_eq(&admitted, access))
    }

    /// What a ticket says that is for a query; `None` for one whose rows are there already.
    ///
    /// # Errors
    /// Those of [`Self::open`].
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

    /// A handle for the client.
    pub(super) fn seal_handle(&self, handle: &PreparedStatementHandle) -> Bytes {
        self.sealer
            .seal(Purpose::PreparedStatement, handle, HANDLE_LIFETIME)
    }

    /// What the client's handle says.
    ///
    /// # Errors
    /// Those of [`Self::open`].
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

    /// Keeps the plan of a statement of so many bytes until it is taken, for a minute at most.
    pub(super) fn keep_plan(&self, by: &Principal, query: Query, statement_bytes: usize) {
        let bytes = PLAN_BYTES.saturating_add(statement_bytes.saturating_mul(PLAN_BYTES_PER_BYTE));
        let id = query.id;
        let kept = KeptPlan {
            query: Arc::new(Mutex::new(Some(query))),
            user: by.bound_to().to_owned(),
            bytes: u32::try_from(bytes.min(self.most_bytes)).unwrap_or(u32::MAX),
        };
        self.plans.insert(id, kept);
    }

    /// Takes a plan of this user's out: it is run once, a second DoGet plans again.
    pub(super) fn take_plan(&self, by: &Principal, id: QueryId) -> Option<Query> {
        let kept = self.plans.get(&id)?;
        if kept.user != by.bound_to() {
            return None;
        }
        self.plans.invalidate(&id);
        kept.query.lock().take()
    }

    /// Forgets a plan of this user's, or of anybody's for an administrator. Returns false if there is none.
    pub(super) fn forget_plan(&self, by: &Principal, id: QueryId) -> bool {
        let is_theirs = |kept: &KeptPlan| by.rights.is_unrestricted() || kept.user == by.bound_to();
        let Some(kept) = self.plans.get(&id).filter(is_theirs) else {
            return false;
        };
        self.plans.invalidate(&id);
        kept.query.lock().take().is_some()
    }
}

/// Whether a ticket is for a part of a query.
pub(super) fn is_direct(ticket: &[u8]) -> bool {
    Sealer::claims(Purpose::Direct, ticket)
}

fn says_of_nothing() -> Error {
    Error::invalid("a ticket for a part of the rows that does not say of which")
}

fn check_bound(by: &Principal, what: &str, user: &str) -> Result<()> {
    if user == by.bound_to() {
        return Ok(());
    }
    Err(Error::new(
        ErrorCode::PermissionDenied,
        format!("the {what} was made for another user; run the statement yourself"),
    ))
}
