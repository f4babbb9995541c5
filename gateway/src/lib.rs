//! The gateway: takes SQL over Flight SQL, plans it, and gathers the rows from the workers.
//!
//! The life of a query goes through the modules in this order: [`flight_sql`] takes the statement, [`engine`] parses and
//! plans it with the [catalog](volary_catalog)'s tables and the rules of the [planner](volary_planner), whose
//! [gather](volary_planner::gather) pulls the fragments from the workers that [`cluster`] knows. Statements that write
//! go through [`load`].

// Calls are futures within futures, deeper than 128, which newer compilers warn of.
#![recursion_limit = "256"]

/// The workers: who has joined, who lives, how they are reached.
pub mod cluster;
/// Settings.
pub mod config;
/// From a statement to rows: parsing, binding, planning, running.
pub mod engine;
/// The Flight SQL surface that clients meet.
pub mod flight_sql;
/// Rows on their way to the shards: COPY, INSERT, CREATE TABLE AS.
pub mod load;
/// Who calls: passwords, sessions' tokens, and what slows those down who guess them.
pub mod login;
/// The process: start, serve, stop.
pub mod server;
/// From text to a statement.
pub mod sql;
/// What types are called in SQL.
mod sql_type;
/// What this gateway works on.
pub mod statements;
/// The tables about the cluster itself.
pub mod system_tables;
/// URLs as they may be shown.
mod url_credentials;

pub use config::Config;
pub use server::Gateway;
