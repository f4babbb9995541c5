//! From a ticket to rows.
//!
//! [`kept`] has the fragment that the ticket names, or takes the one that it brings; [`decode`] makes a plan of it, and of nothing
//! that is not on its list of operators; [`bind`] puts the shards' segments in place of the scans, and the ticket's values in place
//! of the parameters, or the rows of other workers if this one merges them for the gateway ([`relay`]); [`optimize`] runs the rules that need the segments; [`run`] executes the plan and streams its rows, with
//! signs of life between them ([`keep_alive`]), and what is small in one piece ([`in_one_piece`]).

/// Segments in place of scans, values in place of parameters.
pub mod bind;
/// Rows in the order of their hash buckets.
pub mod bucket_order;
/// The plan of a fragment: an allow-list of operators.
pub mod decode;
/// What fragments run in.
pub mod environment;
/// Filters that their scans apply.
pub(crate) mod filtered_scan;
/// Small answers in one piece.
pub mod in_one_piece;
/// Signs of life between the messages of a fragment.
pub mod keep_alive;
/// Fragments that are kept from one ticket to the next.
pub mod kept;
/// The rules that need to know the segments.
pub mod optimize;
/// Merging the rows of other workers for a gateway.
pub mod relay;
/// Executing a fragment, and streaming its rows.
pub mod run;
/// The fragments that run.
pub mod running;
