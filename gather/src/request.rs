//! What the streams of one gather ask their workers for.

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
    /// The query.
    pub query_id: QueryId,
    /// Whose it is, as tickets say it.
    pub owner: u32,
    /// What it sees.
    pub snapshot: Snapshot,
    /// The writes that the tallies of the targets' scans count, where they are others.
    pub counted: Option<Snapshot>,
    /// Which history of writes the catalog has.
    pub lineage: Lineage,
    /// How workers are reached.
    pub peers: Arc<dyn Peers>,
    /// Deadlines and sizes.
    pub limits: Limits,
    /// The fragment's handle.
    pub fragment_id: FragmentId,
    /// The encoded fragment (`volary_flight_proto::fragment::Fragment`).
    pub fragment: Bytes,
    /// The workers that need not be sent it.
    pub known_by: Arc<KnownBy>,
    /// The encoded values of its parameters.
    pub parameters: Bytes,
    /// The fragment's columns.
    pub schema: SchemaRef,
    /// What a client was announced to whom the messages of workers are passed on as they are.
    pub announced: Option<Announced>,
    /// Where workers are reported.
    pub reports: Reports,
}

/// A question that is asked: memory for the answers is reserved.
#[derive(Debug)]
pub struct Request {
    question: Question,
    /// What its streams may have on their way.
    pub flow: Flow,
}

impl Question {
    /// With memory for its answers.
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
