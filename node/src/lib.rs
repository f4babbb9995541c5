//! What every Volary process is made of, gateway and worker alike: its data directory, its runtimes, its memory, its
//! listener and its connections to other nodes, and what both know and DataFusion does not.
//!
//! Nothing here knows of tables.

/// How much runs at the same time, and how much waits.
pub mod admission;
/// Batches of a size that suits the network.
pub mod batches;
/// Hash buckets, by which a gateway merges rows piece by piece.
pub mod buckets;
/// Connections to other nodes.
pub mod channel;
/// Rows as clients are sent them.
pub mod client_rows;
/// One connection to a node's server.
mod connection;
/// The directory that a node keeps its state in: whose it is, and that nobody else uses it.
pub mod data_dir;
/// How long a call may take.
pub mod deadline;
/// What makes files durable.
pub mod disk;
/// Files that survive a crash.
pub mod durable;
/// Who is let in, by the headers of a call.
pub mod gate;
/// A connection's bytes, read only as far as its calls let.
mod held_back;
/// An expression that gateways and workers share: whether a key is one of many.
pub mod key_set;
/// How long rows wait for others to make a larger batch.
pub mod linger;
/// The address that a node listens on.
pub mod listener;
/// Memory and spill space of a node's queries.
pub mod memory;
/// Messages that are larger than a node takes.
pub mod message_limit;
/// The header by which a node shows that it is one.
pub mod node_header;
/// How many files and connections a process may have open.
pub mod open_files;
/// How long is waited for what is missing of a call.
mod patience;
/// Files that nobody but the node's own user reads.
pub mod private;
/// Uploads that their client has broken off.
mod reset;
/// Expressions of a logical plan, rewritten.
pub mod rewrite;
/// How wide rows are that are copied.
mod row_width;
/// Plans as they are run.
pub mod run;
/// The CPU, I/O and health runtimes.
pub mod runtimes;
/// The secret that the nodes of a cluster share.
pub mod secret;
/// A node's server from its start to its end.
pub mod serving;
/// Sizes in settings: "512MiB", "50%".
pub mod size;
/// What carries a connection to another node.
mod stream;
/// TLS: what a node shows, and whom it trusts.
pub mod tls;
/// Filter pushdown that does not take one column for another.
pub mod unambiguous_pushdown;
/// The calls of a connection on which nobody is known yet.
pub mod undecided;
/// Memory of messages of which a part has come.
pub mod unfinished;
/// Functions that make large values of small ones, with a limit.
pub mod value_limit;
/// The messages of a call, each handed on when it is whole.
pub mod whole_messages;

pub use data_dir::DataDir;
pub use runtimes::Runtimes;
