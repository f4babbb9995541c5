use std::time::Duration;

use volary_flight_proto::Result;

use super::column::{Column, milliseconds};
use super::sources::SystemTableSources;
use super::table::SystemTable;
use crate::cluster::{NodeReport, NodeState, NodeStatus};

const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(super) struct Nodes;

pub(super) struct Node {
    id: String,
    role: &'static str,
    address: String,
    state: NodeState,
    version: String,
    zone: Option<String>,
    memory_reserved_bytes: Option<u64>,
    /// The last report of a worker.
    report: Option<NodeReport>,
    heard_ago: Option<Duration>,
}

impl SystemTable for Nodes {
    type Row = Node;

    const NAME: &'static str = "nodes";

    const COLUMNS: &'static [Column<Node>] = &[
        Column::text("id", |node| node.id.clone()),
        Column::text("role", |node| node.role.to_owned()),
        Column::text("address", |node| node.address.clone()),
        Column::text("state", |node| node.state.name().to_owned()),
        Column::text("version", |node| node.version.clone()),
        Column::optional_number("running_fragments", |node| {
            node.report
                .map(|report| u64::from(report.running_fragments))
        }),
        Column::optional_number("memory_reserved_bytes", |node| node.memory_reserved_bytes),
        Column::optional_number("segments", |node| node.report.map(|report| report.segments)),
        Column::optional_number("rows", |node| node.report.map(|report| report.rows)),
        Column::optional_number("bytes", |node| node.report.map(|report| report.bytes)),
        Column::optional_number("last_heartbeat_ms", |node| node.heard_ago.map(milliseconds)),
        Column::optional_text("zone", |node| node.zone.clone()),
    ];

    async fn rows(sources: &SystemTableSources) -> Result<Vec<Node>> {
        let gateway = Node {
            id: "gateway".to_owned(),
            role: "gateway",
            address: sources.cluster.address().to_string(),
            state: NodeState::Alive,
            version: VERSION.to_owned(),
            zone: None,
            memory_reserved_bytes: Some(sources.statements.memory_bytes() as u64),
            report: None,
            heard_ago: None,
        };
        let workers = sources.cluster.nodes().into_iter().map(worker);
        Ok([gateway].into_iter().chain(workers).collect())
    }
}

fn worker(status: NodeStatus) -> Node {
    Node {
        id: status.id.to_string(),
        role: "worker",
        address: status.address,
        state: status.state,
        version: status.version,
        zone: status.zone,
        memory_reserved_bytes: status.report.map(|report| report.memory_reserved_bytes),
        report: status.report,
        heard_ago: status.heard_ago,
    }
}
