use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use volary_flight_proto::fragment::{Fragment, FragmentId, MemberRows, Relayed};
use volary_flight_proto::ids::{ClusterId, QueryId, WorkerId};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::seal::Sealer;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};
use volary_gather::members::{Members, MembersExec};
use volary_gather::report::StreamReports;
use volary_gather::request::RequestSpec;
use volary_gather::{FragmentHolders, GatherLimits, GatherTotals, Peers, Window, WorkerTarget};
use volary_node::channel::NodeClient;

use crate::context::WorkerContext;

/// Divisor of the worker's memory. The quotient is the memory that the rows of all relayed
/// fragments may take.
const SHARE_OF_MEMORY: usize = 4;
/// Widest window of a stream from another worker, in bytes. The rows that are merged are small;
/// otherwise they would not be relayed.
pub(crate) const STREAM_WINDOW_BYTES: usize = 256 << 10;
/// Size of the largest batch that members are asked for, in bytes.
const MAX_BATCH_BYTES: usize = 64 << 20;
/// Time for which a member that cannot be reached is tried again. The gateway tries for longer,
/// with the whole fragment: it learns the new address of a worker that starts again, and this
/// worker does not.
const RETRY_FOR: Duration = Duration::from_secs(1);

/// The members of a ticket, and what they run.
#[derive(Debug)]
pub(crate) struct MemberRelay {
    context: Arc<WorkerContext>,
    relayed: Relayed,
    query_id: QueryId,
    snapshot: Snapshot,
    owner: u32,
    counted_writes: Option<Snapshot>,
    as_of_us: i64,
    lineage: Lineage,
    parameters: Bytes,
    members: Vec<WorkerTarget>,
    addresses: BTreeMap<WorkerId, String>,
    reports: StreamReports,
}

impl MemberRelay {
    /// Reads from a ticket what is to be relayed. Returns `None` if the fragment reads the worker's
    /// own rows.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the ticket does not fit its fragment.
    pub(crate) fn of(
        context: &Arc<WorkerContext>,
        fragment: &Fragment,
        ticket: &FragmentTicket,
    ) -> Result<Option<Self>> {
        let Some(relayed) = &fragment.relayed else {
            return Ok(None);
        };
        if ticket.members.is_empty() {
            return Err(Error::invalid(
                "the ticket of a relay names no workers whose rows to merge",
            ));
        }
        let members = ticket.members.iter().map(|member| WorkerTarget {
            worker: WorkerId(member.worker_id),
            replicas: Vec::new(),
            scans: member.scans.clone(),
            members: Vec::new(),
        });
        let addresses = ticket.members.iter();
        let addresses =
            addresses.map(|member| (WorkerId(member.worker_id), member.address.clone()));
        Ok(Some(Self {
            context: Arc::clone(context),
            relayed: relayed.clone(),
            query_id: ticket.query_id()?,
            owner: ticket.owner,
            snapshot: ticket
                .snapshot
                .clone()
                .ok_or_else(|| Error::invalid("the ticket has no snapshot"))?,
            counted_writes: ticket.counted.clone(),
            as_of_us: ticket.as_of_us,
            lineage: ticket.lineage.unwrap_or_default(),
            parameters: ticket.parameters.clone(),
            members: members.collect(),
            addresses: addresses.collect(),
            reports: StreamReports::default(),
        }))
    }

    /// Returns the leaf that reads the members, in at most `partitions` partitions.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the columns cannot be decoded.
    pub(crate) fn leaf(&self, rows: &MemberRows, partitions: usize) -> Result<MembersExec> {
        let context = &self.context;
        let schema = Arc::new(ipc::schema_from_bytes(&rows.schema)?);
        let fragment_id = FragmentId::of(&self.relayed.fragment);
        let request = RequestSpec {
            announced: None,
            query_id: self.query_id,
            owner: self.owner,
            snapshot: self.snapshot.clone(),
            counted: self.counted_writes.clone(),
            as_of_us: self.as_of_us,
            lineage: self.lineage,
            peers: Arc::new(MemberPeers {
                context: Arc::clone(context),
                addresses: self.addresses.clone(),
            }),
            limits: self.limits(),
            fragment_id,
            fragment: self.relayed.fragment.clone(),
            holders: context.known_fragments.holders(fragment_id),
            parameters: self.parameters.clone(),
            schema: Arc::clone(&schema),
            reports: self.reports.clone(),
            span: tracing::debug_span!("gather", query_id = %self.query_id, workers = self.members.len()),
        };
        // The memory is divided by the number of fragments that relay now. The places limit this
        // number, so that each fragment leaves the others their part.
        let memory = context.config.memory.limit.bytes() / SHARE_OF_MEMORY;
        let memory = memory / context.relay_admission.running().max(1);
        let members = Members::new(self.members.clone(), request, memory);
        Ok(MembersExec::new(
            schema,
            Some(Arc::new(members)),
            partitions,
        ))
    }

    /// Returns what the members reported.
    pub(crate) fn reports(&self) -> &StreamReports {
        &self.reports
    }

    /// Returns the limits for the streams of the members. The gateway sets the idle timeout and the
    /// batch size, which is capped here. All other limits are this worker's own.
    fn limits(&self) -> GatherLimits {
        let relayed = &self.relayed;
        let batch_bytes = usize::try_from(relayed.batch_bytes).unwrap_or(usize::MAX);
        GatherLimits {
            idle_timeout: Duration::from_millis(relayed.idle_timeout_ms.into()),
            retry_timeout: RETRY_FOR,
            batch_bytes: batch_bytes.min(MAX_BATCH_BYTES),
            stream_window_bytes: STREAM_WINDOW_BYTES,
            message_limit: self.context.config.message_limit(),
            memory_setting: "worker.memory.limit",
        }
    }
}

/// The workers that a ticket names. This worker knows no others, and does not know which of them
/// are up.
#[derive(Debug)]
struct MemberPeers {
    context: Arc<WorkerContext>,
    addresses: BTreeMap<WorkerId, String>,
}

impl Peers for MemberPeers {
    fn cluster_id(&self) -> ClusterId {
        self.context.cluster_id
    }

    fn sealer(&self) -> &Sealer {
        &self.context.sealer
    }

    fn client(&self, worker: WorkerId, window: Window) -> Result<NodeClient> {
        let address = self.address(worker)?;
        self.context.connections.client(worker, window, &address)
    }

    fn address(&self, worker: WorkerId) -> Result<String> {
        let address = self.addresses.get(&worker).cloned();
        address.ok_or_else(|| {
            Error::internal(format!("worker {worker} is not a member of the fragment"))
        })
    }

    fn name(&self, worker: WorkerId) -> String {
        match self.addresses.get(&worker) {
            Some(address) => format!("worker {worker} at {address}"),
            None => format!("worker {worker}"),
        }
    }

    fn with_worker_name(&self, worker: WorkerId, error: Error) -> Error {
        let name = self.name(worker);
        match error.code() {
            // If gateways reach all workers, but the workers do not reach each other, every relayed
            // query fails.
            ErrorCode::Unavailable | ErrorCode::DeadlineExceeded => error.at(format!(
                "{name}, whose rows it merges (if workers cannot reach each other, SET relays = 'off')"
            )),
            _ => error.at(name),
        }
    }

    fn sort_live_first(&self, _: &mut [WorkerId]) {}

    fn fragment_holders(&self, fragment: FragmentId) -> Arc<FragmentHolders> {
        self.context.known_fragments.holders(fragment)
    }

    fn totals(&self) -> &GatherTotals {
        &self.context.gather_totals
    }
}
