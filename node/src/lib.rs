//! The parts that gateways and workers share: data directory, runtimes, memory, listener, and
//! connections to other nodes.
//!
//! Nothing in this crate knows about tables.

/// Limits how much runs at the same time, and queues the rest.
pub mod admission;
/// Erases the types of Flight services, so that the code which serves them is compiled only once.
mod any_service;
/// Limits how long a node waits for the missing part of a call.
mod call_timeout;
/// Makes connections to other nodes.
pub mod channel;
/// Serves the Flight service on one connection: over HTTP/2, and over TLS if configured.
mod connection;
/// Opens and locks the directory that a node keeps its state in, and records which node owns it.
pub mod data_dir;
/// Limits how long a call of a client may take: the client's `grpc-timeout` or the session's
/// `statement_timeout`, at most `gateway.query.timeout`.
pub mod deadline;
/// Defines the calls that make files durable as a trait, so that a test can replace them by a disk
/// that fails or forgets.
pub mod disk;
/// Measures the space of file systems.
pub mod disk_space;
/// Writes and reads files that survive a crash.
pub mod durable;
/// Keeps the reads of a connection from delaying its writes.
mod fair_reads;
/// Lets a server implement only the calls of Flight that it serves.
pub mod flight;
/// Decides from the headers of a call whether it is let in, before the rest of it is read.
pub mod gate;
/// Frees what a stream holds before its reader sees the end.
pub mod held_stream;
/// Calls nodes of the same process without a connection.
pub mod in_process;
/// Ends the process at named points, for tests of crashes.
pub mod kill_point;
/// Lets something decide when the bytes of a connection are read.
mod limited_reads;
/// Binds the address that a node listens on.
pub mod listener;
/// Manages the memory and the spill space of a node's queries.
pub mod memory;
/// Limits the memory of messages that have arrived only in part.
pub mod message_budget;
/// Explains to clients that a message is larger than the node accepts.
pub mod message_limit;
/// Defines and collects metrics.
pub mod metrics;
/// Makes and checks the header by which a node of the cluster proves that it is one, before
/// anything else of the call is read.
pub mod node_header;
/// Raises and checks the limit on open files and connections of a process.
pub mod open_files;
/// Answers monitoring systems: metrics, and whether the process is alive and ready.
pub mod operations;
/// Creates files and directories that only the node's own user can read, whatever the umask is.
pub mod private_files;
/// Detects uploads that the client has broken off.
mod reset;
/// Provides the CPU, I/O and health runtimes.
pub mod runtimes;
/// Checks and generates the secret that the nodes of a cluster share.
pub mod secret;
/// Runs a node's server from its start to its end.
pub mod server;
/// Parses the sizes in settings: "512MiB", "50%".
pub mod size;
/// Keeps a node's own records in one transactional file.
pub mod store_file;
/// Carries the bytes of a connection to another node: over TCP, or over TLS on TCP.
mod stream;
/// Configures TLS: what a node shows, and whom it trusts.
pub mod tls;
/// Carries distributed traces from one process to the next.
pub mod traces;
/// Tracks the calls of a connection on which no sender is identified yet, and limits how far the
/// connection is read ahead of them.
pub mod unidentified_calls;
/// Reads a connection on which no sender is identified yet only as far as its calls allow.
mod unidentified_reads;
/// Hands on each message of a call once it is complete.
pub mod whole_messages;

pub use data_dir::DataDir;
pub use kill_point::kill_point;
pub use runtimes::Runtimes;
