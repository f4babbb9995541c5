//! A run starts an instance of its own, in a directory that is deleted. The programs are not a
//! dependency: `apt-get install postgresql` installs them on Debian.

/// Finds a directory for data that the user of PostgreSQL can enter.
mod directory;
/// Runs an instance for another process.
pub mod hosted;
/// Finds the programs of an installed PostgreSQL.
mod programs;
/// Starts and ends an instance.
mod server;

pub use programs::Programs;
pub use server::PostgresServer;
