//! Defines what the streams of one gather ask their workers for.

use std::ops::Deref;
use std::sync::Arc;

use bytes::Bytes;
use datafusion::arrow::datatypes::SchemaRef;
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::snapshot::Snapshot;

use crate::announced::Announced;
use crate::flow::Flow;
use crate::known_fragments::KnownBy;
use crate::limits::Limits;
use crate::peers::Peers;
use crate::report::Reports;

/// A fragment to be run on several workers.
#[derive(Debug, Clone)]
pub struct Question {
    /// Id of the query.
    pub query_id: QueryId,
    /// Number of the user whose query it is, as tickets carry it.
    pub owner: u32,
    /// The writes that the query sees.
    pub snapshot: Snapshot,
    /// The writes that the tallies of the targets' scans count. `None` if they are the writes of
    /// the snapshot.
    pub counted: Option<Snapshot>,
    /// The history of writes that the catalog belongs to.
    pub lineage: Lineage,
    /// How workers are reached.
    pub peers: Arc<dyn Peers>,
    /// The deadlines and sizes.
    pub limits: Limits,
    /// Handle of the fragment.
    pub fragment_id: FragmentId,
    /// The encoded fragment (`volary_flight_proto::fragment::Fragment`).
    pub fragment: Bytes,
    /// The workers that need not be sent the fragment.
    pub known_by: Arc<KnownBy>,
    /// The encoded values of the fragment's parameters.
    pub parameters: Bytes,
    /// Schema of the fragment's rows.
    pub schema: SchemaRef,
    /// The schema that was announced to a client, if the workers' messages are passed on to the
    /// client unchanged.
    pub announced: Option<Announced>,
    /// Collects the reports on the workers.
    pub reports: Reports,
}

/// A question for which memory is reserved, so that it can be asked.
#[derive(Debug)]
pub struct Request {
    question: Question,
    /// The bytes that the streams may have in transit.
    pub flow: Flow,
}

impl Question {
    /// Combines the question with the memory for its answers.
    pub fn with(self, flow: Flow) -> Request {
        Request {
            question: self,
            flow,
        }
    }
}

impl Deref for Request {
    type Target = Question;

    fn deref(&self) -> &Question {
        &self.question
    }
}
