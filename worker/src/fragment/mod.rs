//! A ticket names or contains a fragment, which [`cache`] returns. [`decode`] makes a plan of it,
//! and accepts only operators on its list. [`bind`] puts the shards' segments in place of the
//! scans, and the ticket's values in place of the parameters. If this worker merges the rows of
//! other workers for the gateway, the plan reads those rows instead of segments ([`relay`]).
//! [`optimize`] runs the rules that need the segments. [`run`] executes the plan and streams its
//! rows, with keep-alives between them ([`keep_alive`]). Small answers are sent in one piece
//! (`small_answer`).

/// Limits the rows of the batches that a fragment asks for.
mod batch_rows;
/// Puts segments in place of scans, and values in place of parameters.
pub mod bind;
/// Sends the rows of a fragment in the order of their hash buckets.
mod bucket_order;
/// Caches fragments from one ticket to the next, so that they need not be sent or decoded again.
pub mod cache;
/// Decodes the plan of a fragment, with an allow-list of operators.
pub mod decode;
/// Makes the environments that fragments run in: functions, settings and memory.
pub mod environment;
/// Decodes filters into the scans that apply them.
pub(crate) mod filtered_scan;
/// Sends keep-alives between the messages of a fragment.
pub mod keep_alive;
/// Runs the optimizer rules that need to know the segments.
pub mod optimize;
/// Merges the rows of other workers for a gateway.
pub mod relay;
/// Executes a fragment and streams its rows.
pub mod run;
/// Lists the fragments that run on a worker.
pub mod running;
/// Tells which fragments are short enough to run on network threads.
mod short;
/// Sends small answers in one piece.
pub(crate) mod small_answer;
/// Measures the stages of a fragment.
mod stage_timers;
/// Adds up what the operators of a plan have measured.
mod work;
