use std::sync::Arc;

use datafusion::error::Result;
use datafusion::execution::TaskContext;
use parking_lot::Mutex;
use volary_exec::client_rows::CLIENT_BATCH_BYTES;
use volary_gather::announced_schema::AnnouncedSchema;
use volary_gather::flow::FlowControl;
use volary_gather::report::StreamReports;
use volary_gather::request::RequestSpec;
use volary_gather::{GatherRequest, Window};

use super::context::QueryContext;
use super::fragment_spec::{CountedWritesSource, FilledFragment, FragmentSpec};
use super::runtime_filter::{NarrowedRows, filter_fragment, narrow};

/// Maximum number of keys in all tickets of one gather together. A list that is short for one
/// worker is long for thousands.
const MAX_KEYS_SENT: usize = 4_000_000;

/// The request for a fragment's rows. It is made once, when the first stream opens. By then the
/// scalar subqueries in the fragment have been run, and the joins above it know the keys that they
/// look for.
#[derive(Debug)]
pub(super) struct FragmentRequest {
    spec: FragmentSpec,
    reports: StreamReports,
    cached: Mutex<Option<CachedRequest>>,
}

/// The request to the workers. `None` if no worker is asked.
type CachedRequest = Option<Arc<GatherRequest>>;

impl FragmentRequest {
    /// Creates the request, but does not build it yet: the first call of [`Self::get`] does.
    pub(super) fn new(spec: FragmentSpec) -> Self {
        Self {
            spec,
            reports: StreamReports::default(),
            cached: Mutex::new(None),
        }
    }

    /// Returns the fragment.
    pub(super) fn spec(&self) -> &FragmentSpec {
        &self.spec
    }

    /// Returns what the workers reported.
    pub(super) fn reports(&self) -> &StreamReports {
        &self.reports
    }

    /// Returns the request. Returns `None` if no row of the fragment is needed, so that no worker
    /// is asked. `announced` is the form of the messages that a client expects, if workers encode
    /// the messages for that client. No stream has a window that is wider than `widest`.
    ///
    /// # Errors
    /// An error if the fragment cannot be encoded; `RESOURCE_EXHAUSTED` if the memory of the query
    /// is too small for the rows in flight.
    pub(super) fn get(
        &self,
        query: &Arc<QueryContext>,
        task: &TaskContext,
        announced: Option<&AnnouncedSchema>,
        widest: Window,
    ) -> Result<Option<Arc<GatherRequest>>> {
        let mut cached = self.cached.lock();
        if let Some(request) = cached.as_ref() {
            return Ok(request.clone());
        }
        let fragment = self.encode(query, task.session_config().batch_size())?;
        let request = match fragment {
            None => None,
            Some(fragment) => Some(Arc::new(
                self.build(query, fragment, task, announced, widest)?,
            )),
        };
        *cached = Some(request.clone());
        Ok(request)
    }

    /// Encodes the fragment, narrowed by what the joins above know. Returns `None` if they know
    /// that no row is needed.
    fn encode(&self, query: &QueryContext, batch_rows: usize) -> Result<Option<FilledFragment>> {
        let spec = &self.spec;
        let narrowed = self.narrow(query)?;
        if let Some(filled) = spec.filled() {
            return Ok(Some(filled.clone()));
        }
        let plan = Arc::clone(spec.plan());
        let plan = match narrowed {
            NarrowedRows::None => return Ok(None),
            NarrowedRows::All => plan,
            NarrowedRows::Matching(filter) => filter_fragment(plan, &filter)?,
        };
        Ok(Some(spec.encode_plan(query, &plan, batch_rows)?))
    }

    fn narrow(&self, query: &QueryContext) -> Result<NarrowedRows> {
        let spec = &self.spec;
        if spec.filters().is_empty() {
            return Ok(NarrowedRows::All);
        }
        let keys_per_worker = MAX_KEYS_SENT / spec.worker_count().max(1);
        let max_keys = keys_per_worker.min(query.config.runtime_filter_keys);
        let (schema, statistics) = (spec.plan().schema(), spec.statistics()?);
        let narrowed = narrow(spec.filters(), &schema, &statistics, max_keys)?;
        self.reports.note_narrowing(narrowed.to_string());
        Ok(narrowed)
    }

    fn build(
        &self,
        query: &Arc<QueryContext>,
        filled: FilledFragment,
        task: &TaskContext,
        announced: Option<&AnnouncedSchema>,
        widest: Window,
    ) -> Result<GatherRequest> {
        let fragment = &filled.fragment;
        let mut limits = query.config.limits();
        if announced.is_some() {
            limits.batch_bytes = limits.batch_bytes.max(CLIENT_BATCH_BYTES);
        }
        let (streams, gathers) = (self.spec.stream_count(), self.spec.gather_count());
        let pool = task.memory_pool();
        let flow = FlowControl::reserve(widest, streams, gathers, query.memory, &limits, pool)?;
        let (counted, as_of_us) = match filled.counted_by {
            CountedWritesSource::Query => {
                (query.counted_writes.clone(), self.spec.as_of_us(query)?)
            }
            CountedWritesSource::Part { counted, as_of_us } => (counted, as_of_us),
        };
        let spec = RequestSpec {
            query_id: query.query_id,
            owner: query.owner,
            snapshot: query.snapshot.clone(),
            counted,
            as_of_us,
            lineage: query.lineage,
            peers: Arc::clone(&query.peers),
            limits,
            fragment_id: fragment.id,
            fragment: fragment.message.clone(),
            holders: query.peers.fragment_holders(fragment.id),
            parameters: filled.parameters,
            schema: self.spec.plan().schema(),
            announced: announced.cloned(),
            reports: self.reports.clone(),
            span: query.span.gather(query.query_id, self.spec.worker_count()),
        };
        Ok(spec.with_flow(flow))
    }
}
