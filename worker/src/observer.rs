use std::path::Path;
use std::sync::Arc;

use volary_node::admission::Admission;
use volary_node::metrics::{Metric, Samples};
use volary_node::operations::{NodeResources, ObservedNode};
use volary_node::tls::CertificateFiles;

use crate::context::WorkerContext;
use crate::membership::Reporter;
use crate::totals::FragmentKind;

const FRAGMENTS: Metric = Metric::counter(
    "volary_fragments_total",
    &["node", "kind", "outcome"],
    "Fragments that ended, by kind (`shards`, `relay`, `client`) and outcome (`ok`, or the code of the error).",
);
const FRAGMENT_DURATION: Metric = Metric::histogram(
    "volary_fragment_duration_seconds",
    &["node"],
    "Time from the arrival of a ticket to the end of its fragment.",
);
const FRAGMENTS_RUNNING: Metric = Metric::gauge(
    "volary_fragments_running",
    &["node", "kind"],
    "Fragments that run now.",
);
const FRAGMENTS_WAITING: Metric = Metric::gauge(
    "volary_fragments_waiting",
    &["node", "kind"],
    "Fragments that wait for a place.",
);
const FRAGMENTS_LIMIT: Metric = Metric::gauge(
    "volary_fragments_running_limit",
    &["node", "kind"],
    "Number of places for running fragments (`worker.execution.max_running`).",
);
const SENT_ROWS: Metric = Metric::counter(
    "volary_fragment_sent_rows_total",
    &["node"],
    "Rows that fragments have sent.",
);
const SENT_BYTES: Metric = Metric::counter(
    "volary_fragment_sent_bytes_total",
    &["node"],
    "Bytes of rows that fragments have sent, as encoded.",
);
const KEYED_FRAGMENTS: Metric = Metric::counter(
    "volary_keyed_fragments_total",
    &["node", "outcome"],
    "Fragments that asked for rows by key, by outcome: `answered` from decoded columns, `cold` if the rows were not worth decoding yet, `unfit` if they could not be looked up. Fragments that are not answered run like all others.",
);
const LOOKED_UP_KEYS: Metric = Metric::counter(
    "volary_looked_up_keys_total",
    &["node"],
    "Keys that were looked up in decoded columns.",
);
const LOOKUP_COLUMNS: Metric = Metric::counter(
    "volary_lookup_columns_total",
    &["node", "outcome"],
    "Columns of row groups that lookups needed, by outcome: `hit` if they were still decoded, `miss` if they were decoded then.",
);
const LOOKUP_BYTES: Metric = Metric::gauge(
    "volary_lookup_held_bytes",
    &["node"],
    "Memory of the columns that stay decoded for lookups.",
);
const LOOKUP_LIMIT: Metric = Metric::gauge(
    "volary_lookup_limit_bytes",
    &["node"],
    "Memory that columns may take which stay decoded for lookups: seven eighths of `worker.lookup.memory`.",
);
const DECODED_SEGMENT_BYTES: Metric = Metric::gauge(
    "volary_decoded_segment_bytes",
    &["node"],
    "Memory of the segments of less than 1,024 rows that stay decoded for scans. They may take an eighth of `worker.lookup.memory`.",
);
const RECEIVED_ROWS: Metric = Metric::counter(
    "volary_received_rows_total",
    &["node"],
    "Rows that arrived to be stored.",
);
const RECEIVED_BYTES: Metric = Metric::counter(
    "volary_received_bytes_total",
    &["node"],
    "Bytes of rows that arrived to be stored, as encoded.",
);
const SHARDS: Metric = Metric::gauge(
    "volary_shards",
    &["node"],
    "Shards that have had rows on this worker.",
);
const SEGMENTS: Metric = Metric::gauge("volary_segments", &["node"], "Segments on disk.");
const SEGMENT_ROWS: Metric = Metric::gauge(
    "volary_segment_rows",
    &["node"],
    "Rows of the segments on disk, whether queries see them or not.",
);
const SEGMENT_BYTES: Metric = Metric::gauge(
    "volary_segment_bytes",
    &["node"],
    "Size of the segments on disk.",
);
const LOG_ROWS: Metric = Metric::gauge(
    "volary_log_rows",
    &["node"],
    "Rows that are in the log and in no segment yet.",
);
const LOG_USE: Metric = Metric::gauge(
    "volary_log_used_ratio",
    &["node"],
    "Share of the log that is taken by rows which are in no segment yet, from 0 to 1.",
);
const LOGGED_BYTES: Metric = Metric::counter(
    "volary_logged_bytes_total",
    &["node"],
    "Bytes of rows that went to the log.",
);
const FLUSHED_BYTES: Metric = Metric::counter(
    "volary_flushed_bytes_total",
    &["node"],
    "Bytes of segments that were made of rows in the log.",
);
const WRITTEN_BYTES: Metric = Metric::counter(
    "volary_written_bytes_total",
    &["node"],
    "Bytes of segments that large writes made.",
);
const MERGES: Metric = Metric::counter(
    "volary_merges_total",
    &["node"],
    "Merges of segments into larger ones.",
);
const MERGED_BYTES: Metric = Metric::counter(
    "volary_merged_bytes_total",
    &["node"],
    "Bytes of segments that were merged into larger ones.",
);
const COMPACTED_BYTES: Metric = Metric::counter(
    "volary_compacted_bytes_total",
    &["node"],
    "Bytes of segments that merges made.",
);
const EXPIRED_ROWS: Metric = Metric::counter(
    "volary_expired_rows_total",
    &["node"],
    "Rows that were deleted because they had expired.",
);
const WRITES: Metric = Metric::gauge(
    "volary_writes_in_progress",
    &["node"],
    "Streams of rows that are being received and stored.",
);
const SCRUBBED_BYTES: Metric = Metric::counter(
    "volary_scrubbed_bytes_total",
    &["node"],
    "Bytes of segments that were compared with their checksums in the background.",
);
const DAMAGED: Metric = Metric::gauge(
    "volary_damaged_segments",
    &["node"],
    "Segments that are known to be damaged or missing.",
);
const LAST_QUESTION: Metric = Metric::gauge(
    "volary_gateway_last_question_seconds",
    &["node"],
    "Time since a gateway last asked the worker for its report.",
);

/// The metrics that only workers have.
pub const METRICS: &[Metric] = &[
    FRAGMENTS,
    FRAGMENT_DURATION,
    FRAGMENTS_RUNNING,
    FRAGMENTS_WAITING,
    FRAGMENTS_LIMIT,
    SENT_ROWS,
    SENT_BYTES,
    KEYED_FRAGMENTS,
    LOOKED_UP_KEYS,
    LOOKUP_COLUMNS,
    LOOKUP_BYTES,
    LOOKUP_LIMIT,
    DECODED_SEGMENT_BYTES,
    RECEIVED_ROWS,
    RECEIVED_BYTES,
    SHARDS,
    SEGMENTS,
    SEGMENT_ROWS,
    SEGMENT_BYTES,
    LOG_ROWS,
    LOG_USE,
    LOGGED_BYTES,
    FLUSHED_BYTES,
    WRITTEN_BYTES,
    MERGES,
    MERGED_BYTES,
    COMPACTED_BYTES,
    EXPIRED_ROWS,
    WRITES,
    SCRUBBED_BYTES,
    DAMAGED,
    LAST_QUESTION,
];

/// A worker as monitoring systems see it.
#[derive(Debug)]
pub(crate) struct WorkerObserver {
    context: Arc<WorkerContext>,
    reporter: Arc<Reporter>,
    resources: NodeResources,
}

impl WorkerObserver {
    pub(crate) fn new(
        context: Arc<WorkerContext>,
        reporter: Arc<Reporter>,
        data_dir: &Path,
    ) -> Self {
        let resources = NodeResources {
            runtime_env: Arc::clone(&context.runtime_env),
            memory_limit_bytes: context.config.memory.limit.bytes(),
            data_dir: data_dir.to_owned(),
            certificates: CertificateFiles::of(&context.config.tls),
        };
        Self {
            context,
            reporter,
            resources,
        }
    }

    fn admission(&self, kind: FragmentKind) -> &Admission {
        match kind {
            FragmentKind::Shards => &self.context.fragment_admission,
            FragmentKind::Relay => &self.context.relay_admission,
            FragmentKind::Client => &self.context.client_admission,
        }
    }
}

impl ObservedNode for WorkerObserver {
    fn name(&self) -> String {
        self.context.id.to_string()
    }

    fn why_not_ready(&self) -> Option<String> {
        let is_draining = self.reporter.is_draining();
        is_draining.then(|| "the worker is about to stop".to_owned())
    }

    fn collect(&self, samples: &mut Samples) {
        let (context, node) = (&self.context, self.name());
        let labels = || [("node", node.clone())];
        let reserved = context.lookups.memory().reserved_by_others();
        self.resources.collect(&node, reserved, samples);
        context.gather_totals.collect(&node, samples);
        let limit = context.config.execution.max_running;
        for kind in FragmentKind::ALL {
            let labels = || [("node", node.clone()), ("kind", kind.name().to_owned())];
            let admission = self.admission(kind);
            samples.gauge(FRAGMENTS_RUNNING, labels(), admission.running() as f64);
            samples.gauge(FRAGMENTS_WAITING, labels(), admission.waiting() as f64);
            samples.gauge(FRAGMENTS_LIMIT, labels(), limit as f64);
            for (outcome, count) in context.totals.outcomes(kind).all() {
                let [node, kind] = labels();
                samples.counter(FRAGMENTS, [node, kind, ("outcome", outcome)], count);
            }
        }
        samples.histogram(FRAGMENT_DURATION, labels(), &context.totals.durations);
        samples.counter(SENT_ROWS, labels(), context.totals.sent.rows());
        samples.counter(SENT_BYTES, labels(), context.totals.sent.bytes());
        let lookups = &context.lookups.totals;
        for (metric, outcome, counter) in [
            (KEYED_FRAGMENTS, "answered", &lookups.answered),
            (KEYED_FRAGMENTS, "cold", &lookups.cold),
            (KEYED_FRAGMENTS, "unfit", &lookups.unfit),
            (LOOKUP_COLUMNS, "hit", &lookups.hits),
            (LOOKUP_COLUMNS, "miss", &lookups.misses),
        ] {
            let [node] = labels();
            let labels = [node, ("outcome", outcome.to_owned())];
            samples.counter(metric, labels, counter.get());
        }
        samples.counter(LOOKED_UP_KEYS, labels(), lookups.keys.get());
        let memory = context.lookups.memory();
        samples.gauge(LOOKUP_BYTES, labels(), context.lookups.held_bytes() as f64);
        samples.gauge(LOOKUP_LIMIT, labels(), memory.bytes_for_lookups() as f64);
        let held = context.decoded_segments.held_bytes();
        samples.gauge(DECODED_SEGMENT_BYTES, labels(), held as f64);
        samples.counter(RECEIVED_ROWS, labels(), context.totals.received.rows());
        samples.counter(RECEIVED_BYTES, labels(), context.totals.received.bytes());
        let stored = context.storage.totals();
        samples.gauge(SHARDS, labels(), stored.shards as f64);
        samples.gauge(SEGMENTS, labels(), stored.segments as f64);
        let in_segments = stored.rows - stored.logged_rows;
        samples.gauge(SEGMENT_ROWS, labels(), in_segments as f64);
        samples.gauge(SEGMENT_BYTES, labels(), stored.bytes as f64);
        samples.gauge(LOG_ROWS, labels(), stored.logged_rows as f64);
        samples.gauge(LOG_USE, labels(), context.storage.log_share());
        for (metric, counter) in [
            (LOGGED_BYTES, &context.totals.logged_bytes),
            (FLUSHED_BYTES, &context.totals.flushed_bytes),
            (WRITTEN_BYTES, &context.totals.written_bytes),
            (MERGES, &context.totals.merges),
            (MERGED_BYTES, &context.totals.merged_bytes),
            (COMPACTED_BYTES, &context.totals.compacted_bytes),
            (EXPIRED_ROWS, &context.totals.expired_rows),
        ] {
            samples.counter(metric, labels(), counter.get());
        }
        let damaged = context.storage.damaged_segments();
        samples.gauge(DAMAGED, labels(), damaged as f64);
        let writes = context.storage.running_writes();
        samples.gauge(WRITES, labels(), writes as f64);
        let scrubbed = context.totals.scrubbed_bytes.get();
        samples.counter(SCRUBBED_BYTES, labels(), scrubbed);
        let since = self.reporter.since_last_question();
        samples.gauge(LAST_QUESTION, labels(), since.as_secs_f64());
    }
}
