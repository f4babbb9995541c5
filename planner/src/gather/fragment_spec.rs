use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use datafusion::common::{ScalarValue, Statistics};
use datafusion::error::Result;
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::statistics::{StatisticsArgs, StatisticsContext};
use prost::Message;
use tracing::Span;
use volary_exec::buckets::Buckets;
use volary_flight_proto::Error;
use volary_flight_proto::fragment::{FragmentId, HashBuckets, Relayed};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::FragmentTicket;
use volary_gather::WorkerTarget;
use volary_node::traces;

use super::context::QueryContext;
use super::relay_plan::RelayPlan;
use super::shard_counts::ScannedTables;
use crate::fragment::ShardScanExec;
use crate::fragment::encode::{EncodedPlan, encode};
use crate::targets;

/// Describes a fragment: the plan that the workers of a gather run, and the form in which they send
/// its rows.
#[derive(Debug, Clone)]
pub(super) struct FragmentSpec {
    plan: Arc<dyn ExecutionPlan>,
    /// Number of workers that run the fragment.
    workers: usize,
    ordered: bool,
    fetch: Option<usize>,
    filters: Vec<Arc<dyn PhysicalExpr>>,
    buckets: Option<Buckets>,
    /// The relays, which merge the rows of other workers.
    relays: Option<RelayPlan>,
    /// Number of gathers of the query, which share its memory.
    gather_count: usize,
    filled: Option<FilledFragment>,
}

/// An encoded fragment.
#[derive(Debug)]
pub struct PreparedFragment {
    pub(super) id: FragmentId,
    pub(super) message: Bytes,
    encoded: EncodedPlan,
}

impl PreparedFragment {
    /// Returns how many values the fragment has.
    pub(super) fn value_count(&self) -> usize {
        self.encoded.parameters.values.len()
    }

    /// Returns the numbers of the statement parameters in the fragment, once for each occurrence.
    pub(crate) fn statement_parameters(&self) -> impl Iterator<Item = usize> {
        let parameters = self.encoded.statement_parameters.iter();
        parameters.map(|(_, number)| *number)
    }
}

/// An encoded fragment with the values of a query.
#[derive(Debug, Clone)]
pub(super) struct FilledFragment {
    pub(super) fragment: Arc<PreparedFragment>,
    pub(super) parameters: Bytes,
    pub(super) counted_by: CountedWritesSource,
}

/// The source of the list of counted writes.
#[derive(Debug, Clone)]
pub(super) enum CountedWritesSource {
    Query,
    /// The ticket of a part names the counted writes, and says when the statement began.
    Part {
        counted: Option<Snapshot>,
        as_of_us: i64,
    },
}

impl FragmentSpec {
    /// Creates a fragment: see [`super::GatherExec::new`].
    pub(super) fn new(
        plan: Arc<dyn ExecutionPlan>,
        workers: usize,
        ordered: bool,
        fetch: Option<usize>,
    ) -> Self {
        Self {
            plan,
            workers,
            ordered,
            fetch,
            filters: Vec::new(),
            buckets: None,
            relays: None,
            gather_count: 1,
            filled: None,
        }
    }

    /// Returns the same fragment, whose rows come in the order of their buckets.
    pub(super) fn with_buckets(&self, buckets: Buckets) -> Self {
        Self {
            buckets: Some(buckets),
            ..self.clone()
        }
    }

    /// Returns the same fragment, whose rows are merged by relays before they reach the gateway.
    pub(super) fn with_relays(&self, relays: RelayPlan) -> Self {
        Self {
            relays: Some(relays),
            ..self.clone()
        }
    }

    /// Returns the same fragment as one of `gathers` fragments of a query.
    pub(super) fn with_gather_count(&self, gathers: usize) -> Self {
        Self {
            gather_count: gathers,
            ..self.clone()
        }
    }

    /// Returns the same fragment with additional filters. They narrow its rows as far as they are
    /// known when the fragment is sent.
    pub(super) fn with_filters(
        &self,
        filters: impl IntoIterator<Item = Arc<dyn PhysicalExpr>>,
    ) -> Self {
        Self {
            filters: self.filters.iter().cloned().chain(filters).collect(),
            ..self.clone()
        }
    }

    /// Returns the same fragment, already encoded, with these values of the statement's parameters
    /// and for `workers` workers.
    ///
    /// # Errors
    /// An error if a value cannot be encoded.
    pub(super) fn with_parameters(
        &self,
        fragment: &Arc<PreparedFragment>,
        values: &[ScalarValue],
        workers: usize,
    ) -> Result<Self> {
        let parameters = fragment.encoded.parameters_with(values)?;
        let filled = FilledFragment {
            fragment: Arc::clone(fragment),
            parameters: parameters.encode_to_vec().into(),
            counted_by: CountedWritesSource::Query,
        };
        Ok(Self {
            workers,
            filled: Some(filled),
            ..self.clone()
        })
    }

    /// Returns how many gathers the query has, which is at least one.
    pub(super) fn gather_count(&self) -> usize {
        self.gather_count.max(1)
    }

    /// Returns the plan that runs on the workers.
    pub(super) fn plan(&self) -> &Arc<dyn ExecutionPlan> {
        &self.plan
    }

    /// Returns whether the rows of a worker come in the ordering of the fragment.
    pub(super) fn is_ordered(&self) -> bool {
        self.ordered
    }

    /// Returns the maximum number of rows that are needed from each worker.
    pub(super) fn fetch(&self) -> Option<usize> {
        self.fetch
    }

    /// Returns the buckets, if the rows of a worker come in their order.
    pub(super) fn buckets(&self) -> Option<&Buckets> {
        self.buckets.as_ref()
    }

    /// Returns the relays, if there are any.
    pub(super) fn relays(&self) -> Option<&RelayPlan> {
        self.relays.as_ref()
    }

    /// Returns the number of streams that the gateway reads: one for each relay or worker.
    pub(super) fn stream_count(&self) -> usize {
        self.relays
            .as_ref()
            .map_or(self.workers, |relays| relays.count.min(self.workers))
    }

    /// Returns the filters that joins above fill while the query runs.
    pub(super) fn filters(&self) -> &[Arc<dyn PhysicalExpr>] {
        &self.filters
    }

    /// Returns what is known about the rows before the fragment runs.
    ///
    /// # Errors
    /// An error if an operator cannot compute its statistics.
    pub(super) fn statistics(&self) -> Result<Arc<Statistics>> {
        StatisticsContext::new().compute(self.plan.as_ref(), &StatisticsArgs::new())
    }

    /// Encodes the fragment as it was planned. `query` must have the same settings as the queries
    /// that the result is used for.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub(super) fn prepare(
        &self,
        query: &QueryContext,
        batch_rows: usize,
    ) -> Result<PreparedFragment> {
        self.prepare_plan(query, &self.plan, batch_rows)
    }

    /// Returns a ticket with the fragment for each of these workers. The holder of a ticket can
    /// read the rows of its worker.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded.
    pub(super) fn parts(
        &self,
        query: &QueryContext,
        targets: &[WorkerTarget],
        batch_rows: usize,
    ) -> Result<Vec<FragmentTicket>> {
        let FilledFragment {
            fragment,
            parameters,
            ..
        } = match &self.filled {
            Some(filled) => filled.clone(),
            None => self.encode_plan(query, &self.plan, batch_rows)?,
        };
        let tables = ScannedTables::from_fragment(&self.plan, &query.tables)?;
        let trace = traces::parent_bytes(&Span::current());
        let as_of_us = self.as_of_us(query)?;
        let part = |target: &WorkerTarget| FragmentTicket {
            query_id: Bytes::copy_from_slice(query.query_id.0.as_bytes()),
            cluster: query.peers.cluster_id().short(),
            worker_id: target.worker.0,
            fragment_id: fragment.id.to_bytes(),
            fragment: Some(fragment.message.clone()),
            parameters: parameters.clone(),
            scans: tables.with_counts(target).scans,
            snapshot: Some(query.snapshot.clone()),
            lineage: Some(query.lineage),
            counted: query.counted_writes.clone(),
            as_of_us,
            owner: query.owner,
            trace: trace.clone(),
            ..FragmentTicket::default()
        };
        Ok(targets.iter().map(part).collect())
    }

    /// Returns the time at which the statement began, in microseconds since 1970, if a scan leaves
    /// out rows that had expired by then. Otherwise it would only make tickets larger.
    ///
    /// # Errors
    /// An error if the plan cannot be visited.
    pub(super) fn as_of_us(&self, query: &QueryContext) -> Result<i64> {
        let scans = targets::scans_of(&self.plan)?;
        let mut scans = scans
            .iter()
            .filter_map(|scan| scan.downcast_ref::<ShardScanExec>());
        let may_expire = scans.any(|scan| scan.table().retention().is_some());
        Ok(if may_expire { query.as_of_us } else { 0 })
    }

    /// Returns the same fragment as it is in a ticket of [`Self::parts`].
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the ticket does not contain the fragment.
    pub(super) fn with_part(&self, part: FragmentTicket) -> Result<Self> {
        let id = part.fragment_id()?;
        let message = part.fragment.ok_or_else(|| {
            Error::invalid("the ticket for a part of the rows does not contain its fragment")
        })?;
        let fragment = PreparedFragment {
            id,
            message,
            encoded: EncodedPlan::default(),
        };
        Ok(Self {
            filled: Some(FilledFragment {
                fragment: Arc::new(fragment),
                parameters: part.parameters,
                counted_by: CountedWritesSource::Part {
                    counted: part.counted,
                    as_of_us: part.as_of_us,
                },
            }),
            ..self.clone()
        })
    }

    /// Returns the number of workers that run the fragment, whether they are read through relays or
    /// not.
    pub(super) fn worker_count(&self) -> usize {
        self.workers
    }

    /// Returns the encoded fragment, if it was encoded for another query or came in a ticket.
    pub(super) fn filled(&self) -> Option<&FilledFragment> {
        self.filled.as_ref()
    }

    /// Encodes `plan`, which is the fragment's plan with or without more filters.
    ///
    /// # Errors
    /// An error if the plan cannot be encoded.
    pub(super) fn encode_plan(
        &self,
        query: &QueryContext,
        plan: &Arc<dyn ExecutionPlan>,
        batch_rows: usize,
    ) -> Result<FilledFragment> {
        let fragment = self.prepare_plan(query, plan, batch_rows)?;
        Ok(FilledFragment {
            parameters: fragment.encoded.parameters.encode_to_vec().into(),
            fragment: Arc::new(fragment),
            counted_by: CountedWritesSource::Query,
        })
    }

    fn prepare_plan(
        &self,
        query: &QueryContext,
        plan: &Arc<dyn ExecutionPlan>,
        batch_rows: usize,
    ) -> Result<PreparedFragment> {
        let relay = self.relays.as_ref().map(|relays| &relays.plan);
        let encoded = encode(plan, relay)?;
        let fragment = volary_flight_proto::fragment::Fragment {
            plan: encoded.plan.clone(),
            ordered: self.ordered,
            fetch: self.fetch.map(|rows| rows as u64),
            batch_rows: to_u32(batch_rows),
            keep_alive_ms: milliseconds(query.config.limits().keep_alive_interval()),
            with_plan_metrics: query.with_plan_metrics,
            buckets: self.buckets.as_ref().map(hash_buckets),
            relayed: None,
        };
        let mut message = Bytes::from(fragment.encode_to_vec());
        if let Some(relay) = &encoded.relay {
            let limits = query.config.limits();
            let relaying = volary_flight_proto::fragment::Fragment {
                plan: relay.clone(),
                relayed: Some(Relayed {
                    fragment: message,
                    idle_timeout_ms: milliseconds(limits.idle_timeout),
                    batch_bytes: limits.batch_bytes as u64,
                }),
                ..fragment
            };
            message = Bytes::from(relaying.encode_to_vec());
        }
        Ok(PreparedFragment {
            id: FragmentId::of(&message),
            message,
            encoded,
        })
    }
}

fn hash_buckets(buckets: &Buckets) -> HashBuckets {
    let columns = buckets.columns().iter();
    HashBuckets {
        columns: columns.map(|column| to_u32(*column)).collect(),
        partitions: to_u32(buckets.partitions()),
        rounds: to_u32(buckets.rounds()),
    }
}

fn milliseconds(duration: Duration) -> u32 {
    u32::try_from(duration.as_millis()).unwrap_or(u32::MAX)
}

/// Converts a position or a count. Both are far below 2³².
fn to_u32(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}
