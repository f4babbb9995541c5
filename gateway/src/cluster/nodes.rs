use std::time::Duration;

use volary_flight_proto::ids::WorkerId;

use super::Cluster;

/// What the gateway knows of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// Id of the worker.
    pub id: WorkerId,
    /// Address of the worker's last join, as `host:port`.
    pub address: String,
    /// Says whether the worker is alive.
    pub state: NodeState,
    /// Release of Volary that the worker ran when it last joined.
    pub version: String,
    /// Zone of the worker when it last joined.
    pub zone: Option<String>,
    /// Time of the worker's first join, in milliseconds since 1970.
    pub joined_at_ms: i64,
    /// Time since the worker last joined or answered. `None` if it did neither since the gateway
    /// started.
    pub heard_ago: Option<Duration>,
    /// Last report of the worker. `None` if there was no report since the gateway started.
    pub report: Option<NodeReport>,
}

/// Says whether a worker is alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// The worker has joined or answers.
    Alive,
    /// The worker has said that it is going to stop.
    Draining,
    /// The worker was asked at least twice, and has not answered for longer than
    /// `gateway.cluster.lost_after`. If workers are asked less often than
    /// `gateway.cluster.heartbeat_interval` says, the gateway waits longer.
    Lost,
    /// The worker has neither joined nor answered since the gateway started.
    Unknown,
}

impl NodeState {
    /// All states.
    pub(crate) const ALL: [Self; 4] = [Self::Alive, Self::Draining, Self::Lost, Self::Unknown];

    /// Returns the name of the state in lists.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// What a worker reports about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeReport {
    /// Number of fragments that are running.
    pub running_fragments: u32,
    /// Memory that fragments and writes have reserved, in bytes.
    pub memory_reserved_bytes: u64,
    /// Number of segments on disk.
    pub segments: u64,
    /// Number of rows on disk.
    pub rows: u64,
    /// Number of bytes on disk.
    pub bytes: u64,
}

impl Cluster {
    /// Returns all workers that have ever joined, in ascending order of their ids.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let state = self.catalog.state();
        state
            .workers()
            .map(|record| {
                let member = self.known_workers.get(record.id);
                NodeStatus {
                    id: record.id,
                    address: record.address.clone(),
                    state: match &member {
                        None => NodeState::Unknown,
                        Some(member) if self.known_workers.is_lost(member) => NodeState::Lost,
                        Some(member) if member.is_draining() => NodeState::Draining,
                        Some(_) => NodeState::Alive,
                    },
                    version: record.version.clone(),
                    zone: record.zone.clone(),
                    joined_at_ms: record.joined_at_ms,
                    heard_ago: member.as_ref().map(|member| member.heard_at.elapsed()),
                    report: member
                        .and_then(|member| member.report)
                        .map(|report| NodeReport {
                            running_fragments: report.running_fragments,
                            memory_reserved_bytes: report.memory_reserved_bytes,
                            segments: report.segments,
                            rows: report.rows,
                            bytes: report.bytes,
                        }),
                }
            })
            .collect()
    }
}
