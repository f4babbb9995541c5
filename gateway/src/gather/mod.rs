//! The plan node that pulls a fragment's rows from all its workers.
//!
//! [`exec::GatherExec`] has as many partitions as the gateway has use for; each owns an equal part of the workers. All its
//! streams ([`stream::WorkerStream`]) are opened at once when it is first polled, and read inline by the task that polls it:
//! no queue, no hand-over and no task per stream.

/// What a gather needs to know of the query it belongs to.
pub mod context;
/// The plan node.
pub mod exec;
/// How much of a gather's rows is on its way at a time.
pub mod flow;
/// What a gather learned of its workers: rows, bytes, time.
pub mod report;
/// What the streams of one gather ask their workers for.
pub mod request;
/// Filters that are known only while a query runs.
pub mod runtime_filter;
/// The rows of one worker: opening, retrying, deadlines, decoding.
pub mod stream;
/// Who is asked, and for what.
pub mod target;

pub use context::QueryContext;
pub use exec::{GatherExec, what_holds_of_merged};
pub use request::PreparedFragment;
pub use target::Target;
