//! The workers as `system.nodes` and `volary status` show them.

use std::time::Duration;

use volary_flight_proto::ids::WorkerId;

use super::Cluster;

/// What is known of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeStatus {
    /// The worker.
    pub id: WorkerId,
    /// `host:port` of its last join.
    pub address: String,
    /// Whether it lives.
    pub state: NodeState,
    /// The release of its last join.
    pub version: String,
    /// Its first join, in milliseconds since 1970.
    pub joined_at_ms: i64,
    /// How long ago it joined or last answered; none if it did neither since the gateway started.
    pub heard_ago: Option<Duration>,
    /// Its last report; none if there was none since the gateway started.
    pub report: Option<Report>,
}

/// Whether a worker lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeState {
    /// It has joined, or answers.
    Alive,
    /// It has said that it is going to stop.
    Draining,
    /// It was asked, and has not answered for longer than `gateway.cluster.lost_after`.
    Lost,
    /// It has not joined or answered since the gateway started.
    Unknown,
}

impl NodeState {
    /// As it is shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Draining => "draining",
            Self::Lost => "lost",
            Self::Unknown => "unknown",
        }
    }
}

/// What a worker reports of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Report {
    /// Fragments that run.
    pub running_fragments: u32,
    /// Memory reserved by fragments and writes, in bytes.
    pub memory_reserved_bytes: u64,
    /// Segments on disk.
    pub segments: u64,
    /// Rows on disk.
    pub rows: u64,
    /// Bytes on disk.
    pub bytes: u64,
}

impl Cluster {
    /// All workers that have ever joined, by id.
    pub fn nodes(&self) -> Vec<NodeStatus> {
        let state = self.catalog.state();
        state
            .workers()
            .map(|record| {
                let member = self.members.get(record.id);
                NodeStatus {
                    id: record.id,
                    address: record.address.clone(),
                    state: match &member {
                        None => NodeState::Unknown,
                        Some(member) if self.members.is_lost(member) => NodeState::Lost,
                        Some(member) if member.is_draining() => NodeState::Draining,
                        Some(_) => NodeState::Alive,
                    },
                    version: record.version.clone(),
                    joined_at_ms: record.joined_at_ms,
                    heard_ago: member.as_ref().map(|member| member.heard_at.elapsed()),
                    report: member
                        .and_then(|member| member.report)
                        .map(|report| Report {
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
