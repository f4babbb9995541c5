//! A service that asks for a few rows by key would wait mostly for work that the rows do not need:
//! a plan is bound, operators are started, and pages are decompressed and decoded for one row each.
//! So fragments that ask one scan for rows by key are recognised once ([`request`]), and answered
//! from columns that stay decoded in memory ([`cache`]). A binary search in the sorted key column
//! ([`search`]) finds the rows of some keys ([`keys`]). [`rows`] collects them and applies the
//! fragment's other conditions, and [`answer`] makes messages of them.
//!
//! Everything else is left to the ordinary way of running a fragment, which is right in all cases:
//! keys whose rows are not worth decoding yet ([`segment_index`]), segments of which the snapshot
//! sees only a part, types that are not supported, answers that are not small, and all errors.

/// Answers a ticket from decoded columns.
pub(crate) mod answer;
/// Keeps decoded columns within a memory budget.
pub mod cache;
/// Decodes the values that a ticket asks for to sorted keys.
mod keys;
/// Recognises fragments that ask for rows by key.
pub(crate) mod request;
/// Collects the rows of some keys.
mod rows;
/// Finds sorted keys in sorted columns.
mod search;
/// Knows the row groups of a segment, and decides when their columns are decoded.
mod segment_index;
#[cfg(test)]
pub(crate) mod tests;
