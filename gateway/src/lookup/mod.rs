//! A stream of lookups asks for the rows of keys, batch by batch. The engine
//! ([`crate::engine::lookup_stream`]) runs the batches with what this module computes.

/// Divides keys among the workers that hold their shards.
pub(crate) mod division;
/// Puts the rows that workers have found into the order of their keys.
pub(crate) mod found_rows;
/// Checks the keys of a batch, and casts them to the type of the shard key.
pub(crate) mod keys;
/// Says how large single values are.
mod row_sizes;
/// Limits and counts streams of lookups.
pub(crate) mod streams;
