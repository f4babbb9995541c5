use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use tracing::Span;
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;

use crate::announced_schema::AnnouncedSchema;
use crate::flow::FlowControl;
use crate::known_fragments::FragmentHolders;
use crate::limits::GatherLimits;
use crate::peers::Peers;
use crate::report::StreamReports;

/// A fragment to be run on several workers.
#[derive(Debug, Clone)]
pub struct RequestSpec {
    /// Id of the query.
    pub query_id: QueryId,
    /// Number of the user whose query it is, as tickets carry it.
    pub owner: u32,
    /// The writes that the query sees.
    pub snapshot: Snapshot,
    /// The writes that the tallies of the targets' scans count. `None` if they are the writes of
    /// the snapshot.
    pub counted: Option<Snapshot>,
    /// The time at which the statement began, in microseconds since 1970.
    pub as_of_us: i64,
    /// The history of writes that the catalog belongs to.
    pub lineage: Lineage,
    /// How workers are reached.
    pub peers: Arc<dyn Peers>,
    /// The deadlines and sizes.
    pub limits: GatherLimits,
    /// Handle of the fragment.
    pub fragment_id: FragmentId,
    /// The encoded fragment (`volary_flight_proto::fragment::Fragment`).
    pub fragment: Bytes,
    /// The workers that need not be sent the fragment.
    pub holders: Arc<FragmentHolders>,
    /// The encoded values of the fragment's parameters.
    pub parameters: Bytes,
    /// Schema of the fragment's rows.
    pub schema: SchemaRef,
    /// The schema that was announced to a client, if the workers' messages are passed on to the
    /// client unchanged.
    pub announced: Option<AnnouncedSchema>,
    /// Collects the reports on the workers.
    pub reports: StreamReports,
    /// The span of the gather, for the trace of the query.
    pub span: Span,
}

/// A request for which memory is reserved, so that workers can be asked.
#[derive(Debug)]
pub struct GatherRequest {
    spec: RequestSpec,
    /// The bytes that the streams may have in transit.
    pub flow: FlowControl,
}

impl RequestSpec {
    /// Combines the spec with the memory for the rows in transit.
    pub fn with_flow(self, flow: FlowControl) -> GatherRequest {
        GatherRequest { spec: self, flow }
    }
}

impl Deref for GatherRequest {
    type Target = RequestSpec;

    fn deref(&self) -> &RequestSpec {
        &self.spec
    }
}
