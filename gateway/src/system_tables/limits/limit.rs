use std::sync::Arc;

use volary_catalog::CatalogState;
use volary_node::admission::Admission;
use volary_node::memory::ProcessMemory;
use volary_node::message_budget::MessageBudget;
use volary_node::size::MemorySize;

use crate::config::Config;
use crate::load::group::Groups;
use crate::load::ingest_streams::IngestStreams;
use crate::lookup::streams::LookupStreams;
use crate::statements::Statements;

/// The parts of the gateway that know how much of the limits is in use.
#[derive(Debug, Clone)]
pub(crate) struct LimitUsageSources {
    /// The settings.
    pub(crate) config: Arc<Config>,
    /// The places of running statements.
    pub(crate) places: Arc<Admission>,
    /// The places that are kept for administrators and for queries of the schema `system`.
    pub(crate) kept_places: Arc<Admission>,
    /// The budget for messages that have arrived only in part.
    pub(crate) message_budget: MessageBudget,
    /// The small writes that wait or are in flight.
    pub(crate) groups: Arc<Groups>,
    /// The streams of batches.
    pub(crate) streams: Arc<IngestStreams>,
    /// The streams of lookups.
    pub(crate) lookups: Arc<LookupStreams>,
}

impl LimitUsageSources {
    fn measure(
        &self,
        counted: LimitedQuantity,
        statements: &Statements,
        catalog: &CatalogState,
    ) -> u64 {
        let in_use = match counted {
            LimitedQuantity::Running => self.places.running(),
            LimitedQuantity::Waiting => self.places.waiting(),
            LimitedQuantity::KeptPlaces => self.kept_places.running(),
            LimitedQuantity::OperatorBytes => statements.memory_bytes(),
            LimitedQuantity::ProcessBytes => ProcessMemory::this().in_use(),
            LimitedQuantity::MessageBytes => self.message_budget.bytes(),
            LimitedQuantity::QueuedBytes => self.groups.queue().used_bytes(),
            LimitedQuantity::StreamBytes => self.streams.memory().used_bytes(),
            LimitedQuantity::Streams => self.streams.open(),
            LimitedQuantity::LookupStreams => self.lookups.open(),
            LimitedQuantity::TemporaryTables => catalog.temporary_usage().tables,
            LimitedQuantity::TemporaryBytes => return catalog.temporary_usage().bytes,
        };
        in_use as u64
    }
}

/// A quantity that is counted in one place for the whole node.
#[derive(Debug, Clone, Copy)]
pub(super) enum LimitedQuantity {
    Running,
    Waiting,
    KeptPlaces,
    OperatorBytes,
    ProcessBytes,
    MessageBytes,
    QueuedBytes,
    StreamBytes,
    Streams,
    LookupStreams,
    TemporaryTables,
    TemporaryBytes,
}

/// A limit of a gateway.
#[derive(Debug)]
pub struct GatewayLimit {
    /// What the limit applies to: the node, or each user, session, statement, address, connection
    /// or call.
    pub scope: &'static str,
    /// What is limited.
    pub name: &'static str,
    /// The setting that determines the limit. `None` if the limit is fixed.
    pub setting: Option<&'static str>,
    /// The value of the limit, in `unit`.
    pub value: u64,
    /// The value of the limit in words, if it depends on the machine.
    pub value_text: Option<String>,
    /// The unit of `value`.
    pub unit: &'static str,
    /// What happens if more is needed than the limit allows.
    pub beyond: &'static str,
    /// The quantity that is limited. `None` if it is not counted in one place for the whole node.
    quantity: Option<LimitedQuantity>,
    /// The user, if the limit applies to one user alone.
    pub(super) user: Option<LimitedUser>,
}

/// A user who has a limit, and how much of the limit the user has in use.
#[derive(Debug)]
pub(super) struct LimitedUser {
    pub(super) name: String,
    pub(super) in_use: u64,
}

impl GatewayLimit {
    pub(super) const fn new(
        scope: &'static str,
        name: &'static str,
        most: u64,
        unit: &'static str,
        beyond: &'static str,
    ) -> Self {
        Self {
            scope,
            name,
            setting: None,
            value: most,
            value_text: None,
            unit,
            beyond,
            quantity: None,
            user: None,
        }
    }

    pub(super) fn with_setting(self, setting: &'static str) -> Self {
        Self {
            setting: Some(setting),
            ..self
        }
    }

    pub(super) fn with_quantity(self, counted: LimitedQuantity) -> Self {
        Self {
            quantity: Some(counted),
            ..self
        }
    }

    pub(super) fn with_value_text(self, words: impl Into<String>) -> Self {
        Self {
            value_text: Some(words.into()),
            ..self
        }
    }

    pub(super) fn with_share_of_memory(self, size: MemorySize) -> Self {
        match size {
            MemorySize::Bytes(_) => self,
            MemorySize::Percent(_) => {
                self.with_value_text(format!("{size} of the machine's memory"))
            }
        }
    }

    pub(super) fn for_user(self, name: &str, in_use: u64) -> Self {
        let name = name.to_owned();
        Self {
            user: Some(LimitedUser { name, in_use }),
            ..self
        }
    }

    pub(super) fn in_use(
        &self,
        usage: &LimitUsageSources,
        statements: &Statements,
        catalog: &CatalogState,
    ) -> Option<u64> {
        let node_usage = || {
            let counted = self.quantity?;
            Some(usage.measure(counted, statements, catalog))
        };
        self.user
            .as_ref()
            .map(|user| user.in_use)
            .or_else(node_usage)
    }
}
