//! From a ticket to rows.
//!
//! [`decode`] takes the plan out of the ticket, and nothing that is not on its list of operators; [`bind`] puts the shards'
//! segments in place of the scans; [`optimize`] runs the rules that need the segments; [`run`] executes the plan and streams
//! its rows, with signs of life between them ([`keep_alive`]).

/// Segments in place of scans.
pub mod bind;
/// The plan in a ticket: an allow-list of operators.
pub mod decode;
/// What fragments run in.
pub mod environment;
/// Signs of life between the messages of a fragment.
pub mod keep_alive;
/// The rules that need to know the segments.
pub mod optimize;
/// Executing a fragment, and streaming its rows.
pub mod run;
