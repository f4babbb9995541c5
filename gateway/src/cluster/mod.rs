//! A worker joins ([`Cluster::join`]) and gets an id that the [`Catalog`] keeps. From then on the
//! gateway asks it for its report (`Cluster::ask_workers`). This module keeps in memory which
//! workers are alive. After a restart, the gateway asks all workers that the catalog knows. A
//! worker that has not been asked for a long time joins again. A query connects to the workers that
//! hold its shards ([`Cluster::client`]) even if they are not known to be alive. If one is dead,
//! the connection fails at its deadline.

/// Sends calls to workers.
mod calls;
/// Knows which writes every query sees that may still ask a worker.
mod horizon;
/// Handles the messages with which workers join and leave the cluster.
mod joining;
/// Remembers which workers have joined or answered since the gateway started, and when the gateway
/// last heard from each of them.
mod known_workers;
/// Checks whether the workers' rows belong to the history of writes that this catalog has.
mod lineage_verdicts;
/// Describes the workers for `system.nodes` and `volary status`.
mod nodes;
/// Asks each worker for its report, one worker after the other.
mod reports;
#[cfg(test)]
mod tests;

pub use joining::check_open_files;
pub use nodes::{NodeReport, NodeState, NodeStatus};

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::runtime::Handle;
use tokio::sync::Mutex;
use volary_catalog::Catalog;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::membership::{CHECK_ACTION, JOIN_ACTION, LEAVE_ACTION};
use volary_flight_proto::seal::{Key, Purpose, Sealer};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_gather::connections::WorkerConnections;
use volary_gather::{GatherTotals, KnownFragments};
use volary_node::in_process::InProcessNodes;
use volary_node::tls::ClientTls;

use crate::config::Config;

use horizon::Horizon;
use known_workers::KnownWorkers;
use lineage_verdicts::LineageVerdicts;

/// Lifetime of the seal of an answer. An answer is useful only to the worker that has asked, and
/// only immediately.
const ANSWER_LIFETIME: Duration = Duration::from_secs(60);

/// Pause before a worker that a statement waits for is asked again.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The workers of the cluster.
#[derive(Debug)]
pub struct Cluster {
    catalog: Catalog,
    /// Address that this gateway listens on.
    address: SocketAddr,
    known_workers: KnownWorkers,
    lineage_verdicts: LineageVerdicts,
    horizon: Horizon,
    connections: WorkerConnections,
    known_fragments: KnownFragments,
    gather_totals: GatherTotals,
    /// Opens the messages of workers that do not know the cluster's key yet, and seals the answers
    /// to them.
    membership_sealer: Sealer,
    sealer: Sealer,
    has_secret: bool,
    /// Serializes joins. If two processes that share a data directory join at the same time, the
    /// second one can be refused.
    join_lock: Mutex<()>,
}

impl Cluster {
    /// Creates the cluster of a catalog for the gateway at `address`. Connections are made on the
    /// `io` runtime. Workers that are on the list `in_process` are called without a connection.
    pub fn new(
        config: &Config,
        address: SocketAddr,
        catalog: Catalog,
        tls: Option<ClientTls>,
        io: Handle,
        in_process: Option<&InProcessNodes>,
    ) -> Arc<Self> {
        let secret = config.secret.as_deref();
        let membership_key = Key::from_secret(secret.unwrap_or_default());
        let key = match secret {
            Some(_) => membership_key.clone(),
            None => catalog.state().key().clone(),
        };
        let sealer = Sealer::new(key);
        Arc::new(Self {
            known_workers: KnownWorkers::new(
                config.cluster.heartbeat_interval,
                config.cluster.lost_after,
            ),
            lineage_verdicts: LineageVerdicts::default(),
            horizon: Horizon::new(config.query.ticket_lifetime),
            connections: WorkerConnections::new(
                &config.gather.connections(),
                tls,
                sealer.clone(),
                io,
            )
            .with_in_process(in_process),
            known_fragments: KnownFragments::new(),
            gather_totals: GatherTotals::default(),
            membership_sealer: Sealer::new(membership_key),
            sealer,
            has_secret: secret.is_some(),
            join_lock: Mutex::new(()),
            catalog,
            address,
        })
    }

    /// Returns the id of the cluster.
    pub fn id(&self) -> ClusterId {
        self.catalog.state().cluster_id()
    }

    /// Returns the address that this gateway listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns whether the nodes share a secret. Without a secret, any process of this machine may
    /// join as a worker.
    pub fn has_secret(&self) -> bool {
        self.has_secret
    }

    /// Returns the sealer for the messages of the cluster.
    pub fn sealer(&self) -> &Sealer {
        &self.sealer
    }

    /// Returns a worker's name and address for messages: `worker w3 at 127.0.0.1:7203`.
    pub fn name(&self, worker: WorkerId) -> String {
        match self.catalog.state().worker(worker) {
            Some(record) => format!("worker {worker} at {}", record.address),
            None => format!("worker {worker}"),
        }
    }

    /// Returns the URI at which clients fetch a worker's part of a result. Returns `None` if the
    /// worker has not reported the URI since the gateway started, is lost, or drains.
    pub fn clients_uri(&self, worker: WorkerId) -> Option<String> {
        let member = self.known_workers.get(worker)?;
        let serves = !self.known_workers.is_lost(&member) && !member.is_draining();
        let uri = member.report?.clients_uri;
        (serves && !uri.is_empty()).then_some(uri)
    }

    /// Returns the id of the worker's instance that has adopted this catalog. Only this instance
    /// takes rows. If it is not known, because this gateway or the worker has just started, the
    /// worker is asked.
    ///
    /// # Errors
    /// `UNAVAILABLE`, with the worker's name, if the worker cannot be reached or does not adopt
    /// the catalog within `timeout`. Any other error of asking the worker is returned at once, such
    /// as `DEADLINE_EXCEEDED` if the worker hangs. Also the errors of `Self::refuse_conflicts`.
    pub(crate) async fn wait_for_instance(
        &self,
        worker: WorkerId,
        timeout: Duration,
    ) -> Result<String> {
        let mut last_error = None;
        let reporting = async {
            let adopted_instance = || {
                let worker = self.known_workers.get(worker)?;
                worker.report?.adopted.then_some(worker.instance)
            };
            loop {
                if let Some(instance) = adopted_instance() {
                    return Ok(instance);
                }
                // A worker whose rows conflict with the catalog would refuse new rows.
                self.refuse_conflicts()?;
                match self.ask(worker).await.1 {
                    Ok(()) if adopted_instance().is_some() => continue,
                    Ok(()) => {}
                    Err(error) if error.code() == ErrorCode::Unavailable => {
                        last_error = Some(error);
                    }
                    Err(error) => return Err(error),
                }
                tokio::time::sleep(RETRY_PAUSE).await;
            }
        };
        let reported = tokio::time::timeout(timeout, reporting).await;
        reported.unwrap_or_else(|_| {
            let text = format!(
                "the worker has not reported since the gateway started, and the statement has waited {timeout:?} for it; start the worker, and run the statement again"
            );
            Err(match last_error {
                Some(error) => Error::with_source(ErrorCode::Unavailable, text, error),
                None => Error::unavailable(text),
            }
            .at(self.name(worker)))
        })
    }

    /// Returns the workers that have joined or answered, are not lost and do not drain, in
    /// ascending order. New tables are placed on them.
    pub(crate) fn live_workers(&self) -> Vec<WorkerId> {
        self.known_workers.live_workers()
    }

    /// Refuses a statement that needs all of these workers if one of them is missing: it is lost,
    /// or it has neither joined nor answered for too long since the gateway started.
    ///
    /// # Errors
    /// `UNAVAILABLE`, with the name of the missing worker. Also the errors of
    /// `Self::refuse_conflicts`.
    pub(crate) fn refuse_lost(&self, workers: &[WorkerId]) -> Result<()> {
        self.refuse_conflicts()?;
        let missing = workers
            .iter()
            .find(|worker| self.known_workers.is_missing(**worker));
        match missing {
            Some(worker) => Err(Error::unavailable(
                "the worker is lost: it does not report any more; start it again, and run the statement again",
            )
            .at(self.name(*worker))),
            None => Ok(()),
        }
    }

    /// Waits until `wanted` workers are alive and do not drain.
    ///
    /// # Errors
    /// `UNAVAILABLE` if that does not happen within `timeout`.
    pub async fn wait_for_workers(&self, wanted: usize, timeout: Duration) -> Result<()> {
        let waited = tokio::time::timeout(timeout, self.known_workers.wait_for_live(wanted)).await;
        waited.map_err(|_| {
            Error::unavailable(format!(
                "{} of {wanted} workers have joined within {timeout:?}; start more workers, or check their logs to see why they do not join",
                self.known_workers.live_workers().len()
            ))
        })
    }

    /// Answers a message of a worker at `peer`. The message is the body of a DoAction of one of the
    /// types in [`volary_flight_proto::membership`].
    ///
    /// # Errors
    /// The errors of [`Self::join`]. `PERMISSION_DENIED` for a message that is not sealed with the
    /// cluster's secret. `UNIMPLEMENTED` for another action.
    pub(crate) async fn handle_action(
        &self,
        action_type: &str,
        body: &[u8],
        peer: impl Into<Option<SocketAddr>>,
    ) -> Result<Bytes> {
        let peer = peer.into();
        match action_type {
            JOIN_ACTION => {
                self.check_peer(peer)?;
                let request = self.open(Purpose::Membership, body)?;
                let answer = self.join(request, peer).await?;
                Ok(self.seal(Purpose::MembershipAnswer, &answer))
            }
            LEAVE_ACTION => {
                self.check_peer(peer)?;
                let answer = self.leave(&self.open(Purpose::Membership, body)?);
                Ok(self.seal(Purpose::MembershipAnswer, &answer))
            }
            CHECK_ACTION => {
                self.check_peer(peer)?;
                let request = self.open(Purpose::Check, body)?;
                let answer = self.check(request, peer).await?;
                Ok(self.seal(Purpose::CheckAnswer, &answer))
            }
            other => Err(Error::new(
                ErrorCode::Unimplemented,
                format!("\"{other}\" is not an action of workers"),
            )),
        }
    }

    fn open<M: Message + Default>(&self, purpose: Purpose, body: &[u8]) -> Result<M> {
        self.membership_sealer.open(purpose, body).map_err(|error| {
            if error.code() == ErrorCode::PermissionDenied {
                let advice = if self.has_secret {
                    "the worker's secret differs from this gateway's secret; set worker.secret to the value of gateway.secret"
                } else {
                    "the worker has a secret, and this gateway has none; set gateway.secret to the same value, or remove worker.secret"
                };
                Error::new(ErrorCode::PermissionDenied, advice)
            } else {
                error
            }
        })
    }

    fn seal(&self, purpose: Purpose, answer: &impl Message) -> Bytes {
        self.membership_sealer
            .seal(purpose, answer, ANSWER_LIFETIME)
    }

    /// Refuses workers of other machines if there is no secret. Without a secret, anybody could
    /// seal a request, and would be given the cluster's key.
    fn check_peer(&self, peer: Option<SocketAddr>) -> Result<()> {
        if self.has_secret || peer.is_some_and(|peer| peer.ip().to_canonical().is_loopback()) {
            return Ok(());
        }
        let from = peer.map_or_else(
            || "an unknown address".to_owned(),
            |peer| peer.ip().to_string(),
        );
        Err(Error::new(
            ErrorCode::PermissionDenied,
            format!(
                "a worker at {from} may not join: without a secret, only workers on the gateway's own machine may join; set gateway.secret, and set worker.secret on the workers to the same value"
            ),
        ))
    }
}
