//! Provides what gateways and workers need to run plans and DataFusion does not have.
//!
//! - [`run::make_runnable`] wraps operators, so that plans stop when their query has ended and
//!   compute in turns.
//! - [`value_limit`] limits functions that make large values from small ones.
//! - [`buckets`], [`key_set`] and [`shard_key`] define what a gateway and its workers must compute
//!   in the same way.
//! - [`batches`] and [`client_rows`] give rows the size and form in which they are sent.
//!
//! Nothing in this crate knows about tables or workers.

/// Joins and splits batches to a size that suits the network.
pub mod batches;
/// Divides rows into hash buckets: a worker orders the rows of a fragment by bucket, so that a
/// gateway can merge the rows of all workers piece by piece.
pub mod buckets;
/// Makes `+`, `-` and `*` of integers fail where they would wrap around.
pub mod checked_arithmetic;
/// Defines `sum`, which fails where it would wrap around.
mod checked_sum;
/// Prepares rows for clients, on a gateway or on a worker: in the types that were announced, and in
/// messages that clients accept.
pub mod client_rows;
/// Computes functions for columns and for constants.
mod columnar;
/// Defines `date_bin` for timestamps of all years.
mod date_bin;
/// Defines `date_part`, which returns seconds with their fraction.
pub mod date_part;
/// Defines `date_trunc` for timestamps of all years.
mod date_trunc;
/// Defines `from_unixtime`, which returns instants.
mod from_unixtime;
/// Lists the functions that are defined here, for gateways and workers.
pub mod functions;
/// Defines the type of instants, and the functions that read them in a time zone.
pub mod instants;
/// Defines `ceil`, `floor` and `trunc` of integers.
mod integer_rounding;
/// Reads intervals from texts, and compares them by their lengths.
pub mod intervals;
/// Defines an expression that gateways and workers share: it tests whether a key is in a set of
/// keys.
pub mod key_set;
/// Decides how long rows wait for more rows to make a larger batch.
pub mod linger;
/// Converts between instants and the times that clocks show.
mod local_time;
/// Defines `map_extract`, which returns nothing for a key that a map does not have.
mod map_extract;
/// Tells the order of the values of mathematical functions.
mod math_order;
/// Says how many nanoseconds each unit of time has.
mod nanos;
/// Reserves memory for large batches on their way to a client or another node.
mod outgoing;
/// Defines functions that PostgreSQL has, and DataFusion lacks or has in another form.
pub mod postgres;
/// Rewrites the expressions of a logical plan.
pub mod rewrite;
/// Defines `row_number`, `rank`, `dense_rank` and `ntile`, which return signed integers.
mod row_numbers;
/// Computes the width of rows that operators copy.
mod row_width;
/// Prepares plans for execution: wraps DataFusion's operators where they lack something.
pub mod run;
/// Computes the shard of a row: the only place that turns a key into a shard number.
pub mod shard_key;
/// Defines `single_row`, which takes the only value of a subquery.
pub mod single_row;
/// Measures how long rows are encoded, and how long they wait for their reader.
pub mod stage_timer;
/// Casts between texts and the types that Arrow neither reads from texts nor writes as texts.
pub mod text_casts;
/// Defines `timestampdiff`, which counts the units between two timestamps.
mod timestamp_diff;
/// Defines `range` and `generate_series` for timestamps of all years.
mod timestamp_series;
/// Defines `to_timestamp` for texts of all years.
mod to_timestamp;
/// Pushes filters down without mistaking one column for another.
pub mod unambiguous_pushdown;
/// Defines the type of UUIDs, and the functions that make, read and write them.
pub mod uuids;
/// Limits functions that make large values from small ones.
pub mod value_limit;
/// Adds intervals to instants by the clocks of a time zone.
pub mod zoned_sum;

pub use outgoing::reserve_outgoing;
