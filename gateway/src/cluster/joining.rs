use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use chrono::Utc;
use tokio::net::TcpStream;
use volary_flight_proto::ids::{ClusterId, WorkerId};
use volary_flight_proto::membership::{
    CheckAnswer, CheckRequest, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse, check_zone,
};
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_node::open_files;

use super::Cluster;

const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Deadline for a connection to the former address of a worker that joins from another address.
const PROBE_TIMEOUT: Duration = Duration::from_secs(1);
/// Number of file descriptors that a worker needs on a gateway: one connection for each of the
/// three `Window`s, and one short connection on which the worker joins.
const FILES_PER_WORKER: u64 = 4;

impl Cluster {
    /// Admits a worker, and gives it an id if it has none. Workers join when they have started, and
    /// when nobody has asked them for their report for a long time.
    ///
    /// # Errors
    /// - `PERMISSION_DENIED` for a worker on another machine if no secret is configured.
    /// - `INVALID_ARGUMENT` for a worker of another release, for a data directory of another
    ///   cluster, and for an invalid address or zone.
    /// - `NOT_FOUND` for an id that the catalog does not know.
    /// - `ALREADY_EXISTS` if another process with this id is alive.
    /// - `RESOURCE_EXHAUSTED` if this gateway may not open connections to one more worker.
    /// - The errors of the catalog.
    pub async fn join(
        &self,
        request: JoinRequest,
        peer: impl Into<Option<SocketAddr>>,
    ) -> Result<JoinResponse> {
        self.check_peer(peer.into())?;
        let _turn = self.join_lock.lock().await;
        self.check_join(&request).await?;
        let cluster_id = self.catalog.state().cluster_id();
        let record = self
            .catalog
            .register_worker(
                request.worker_id.map(WorkerId),
                &request.address,
                &request.version,
                request.zone.as_deref(),
            )
            .await?;
        let is_new = self
            .known_workers
            .note_join(record.id, &request.address, &request.instance);
        if is_new {
            tracing::info!(worker = %record.id, address = request.address, version = request.version, "worker joined");
        }
        Ok(JoinResponse {
            worker_id: record.id.0,
            cluster_id: cluster_id.to_string(),
            key: if self.has_secret {
                Bytes::new()
            } else {
                Bytes::copy_from_slice(self.catalog.state().key().as_bytes())
            },
            report_interval_ms: self.ask_interval_ms(),
        })
    }

    /// Refuses what [`Self::join`] refuses because of the request. Changes nothing.
    async fn check_join(&self, request: &JoinRequest) -> Result<()> {
        check_release(request)?;
        check_address(request)?;
        request.zone.as_deref().map_or(Ok(()), check_zone)?;
        let state = self.catalog.state();
        check_cluster(request, state.cluster_id())?;
        let existing = request.worker_id.map(WorkerId);
        if let Some(worker) = existing {
            self.check_no_other_process(worker, request).await?;
            state.known_worker(worker, &request.address)?;
        }
        self.check_open_files(existing)
    }

    /// Says which gateway this is, and whether it would let the worker join. Changes nothing.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` for a worker on another machine if no secret is configured.
    pub(super) async fn check(
        &self,
        request: CheckRequest,
        peer: Option<SocketAddr>,
    ) -> Result<CheckAnswer> {
        self.check_peer(peer)?;
        let checked = match &request.join {
            Some(join) => self.check_join(join).await,
            None => Ok(()),
        };
        Ok(CheckAnswer {
            nonce: request.nonce,
            version: VERSION.to_owned(),
            cluster_id: self.catalog.state().cluster_id().to_string(),
            now_ms: u64::try_from(Utc::now().timestamp_millis()).unwrap_or_default(),
            refusal: checked.err().map_or_else(String::new, |error| error.text()),
        })
    }

    /// Notes that a worker is going to stop. A message from another instance of the worker than the
    /// known one is ignored.
    pub fn leave(&self, request: &LeaveRequest) -> LeaveResponse {
        self.known_workers
            .note_leave(WorkerId(request.worker_id), &request.instance);
        LeaveResponse {}
    }

    /// Returns how often each worker is currently asked for its report, in milliseconds.
    pub(super) fn ask_interval_ms(&self) -> u32 {
        u32::try_from(self.known_workers.ask_interval().as_millis()).unwrap_or(u32::MAX)
    }

    /// Refuses a worker for which this gateway has too few file descriptors. If the worker were
    /// admitted, statements could fail midway, because the gateway could not connect to some of the
    /// workers.
    fn check_open_files(&self, joining: Option<WorkerId>) -> Result<()> {
        let others = self.known_workers.live_workers().into_iter();
        let others = others.filter(|worker| Some(*worker) != joining).count();
        check_open_files(others + 1)
    }

    /// Refuses a worker if another process with its id is alive. A worker that was killed may start
    /// again on another port before it counts as lost. So the gateway tries to connect to the
    /// former address.
    async fn check_no_other_process(&self, worker: WorkerId, request: &JoinRequest) -> Result<()> {
        let Some(member) = self.known_workers.get(worker) else {
            return Ok(());
        };
        if member.instance == request.instance
            || member.address == request.address
            || self.known_workers.is_lost(&member)
        {
            return Ok(());
        }
        let probe = tokio::time::timeout(PROBE_TIMEOUT, TcpStream::connect(&member.address)).await;
        // If the connection fails, no process listens there any more. If it times out, the network
        // may be the cause. Then the worker is refused until the former process counts as lost.
        if matches!(probe, Ok(Err(_))) {
            return Ok(());
        }
        Err(Error::new(
            ErrorCode::AlreadyExists,
            format!(
                "worker {worker} at {} may not join: worker {worker} at {} is alive; two workers cannot share a data directory, so start the second one with an empty directory",
                request.address, member.address
            ),
        ))
    }
}

/// Refuses a number of workers if a gateway in this process may not open enough files for them.
///
/// # Errors
/// `RESOURCE_EXHAUSTED`, with the limit and the need.
pub fn check_open_files(workers: usize) -> Result<()> {
    open_files::check_workers("this gateway", workers, FILES_PER_WORKER)
}

fn check_release(request: &JoinRequest) -> Result<()> {
    if series(&request.version) == series(VERSION) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the worker at {} runs Volary {}, but the gateway runs {VERSION}; run releases of the same series (major.minor) on all nodes",
        request.address, request.version
    )))
}

/// Returns the major and the minor number of a release.
fn series(version: &str) -> Option<(&str, &str)> {
    let mut parts = version.split('.');
    Some((parts.next()?, parts.next()?))
}

fn check_address(request: &JoinRequest) -> Result<()> {
    let address = &request.address;
    let is_address = address.rsplit_once(':').is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if !is_address {
        return Err(Error::invalid(format!(
            "a worker wants to join with the address \"{address}\"; worker.advertise must be host:port"
        )));
    }
    if address
        .parse::<SocketAddr>()
        .is_ok_and(|address| address.ip().is_unspecified())
    {
        return Err(Error::invalid(format!(
            "a worker wants to join with the address {address}, which other nodes cannot reach; set worker.advertise to a host:port that gateways can reach"
        )));
    }
    Ok(())
}

fn check_cluster(request: &JoinRequest, ours: ClusterId) -> Result<()> {
    let Some(theirs) = &request.cluster_id else {
        return Ok(());
    };
    if theirs.parse::<ClusterId>()? == ours {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "the data directory of the worker at {} belongs to cluster {theirs}, but this is cluster {ours}; start the worker with its cluster's gateway, or with an empty data directory",
        request.address
    )))
}
