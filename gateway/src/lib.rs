//! The gateway: takes SQL over Flight SQL, plans it, and gathers the rows from the workers.
//!
//! A query passes through the modules in this order. [`flight_sql`] takes the statement. [`engine`]
//! parses and plans it with the tables of the [catalog](volary_catalog) and the rules of the
//! [planner](volary_planner). The planner's [gather](volary_planner::gather) reads the rows of the
//! fragments from the workers that [`cluster`] knows. Statements that write rows go through
//! [`load`].

// The futures of calls are nested more than 128 levels deep, and newer compilers warn about that.
#![recursion_limit = "256"]

/// Maps the types of rows to those that clients can read.
mod client_types;
/// Knows the workers: which ones have joined, which ones are alive, and how to reach them.
pub mod cluster;
/// Defines the settings of a gateway.
pub mod config;
/// Turns a statement into rows: parses it, binds its parameters, plans it and runs it.
pub mod engine;
/// Serves clients over Flight SQL.
pub mod flight_sql;
/// Brings the rows of COPY, INSERT and CREATE TABLE AS to the shards.
pub mod load;
/// Finds out who calls, by password or by the token of a session, and slows down callers who guess.
pub mod login;
/// Computes the answers to batches of keys.
mod lookup;
/// Shows the gateway to monitoring systems.
pub mod observer;
/// Starts, runs and stops the gateway.
pub mod server;
/// Parses statements, and refuses some of them before they are planned or run.
pub mod sql;
/// Maps Arrow types to their names in SQL.
mod sql_type;
/// Lists the statements that this gateway works on, for system.queries, and those that have ended,
/// for system.query_log.
pub mod statements;
/// Limits how many streams of one kind are open.
mod stream_places;
/// Provides the tables about the cluster itself, in the schema `system`.
pub mod system_tables;
/// Hides the credentials in URLs before they are shown.
mod url_credentials;

pub use config::Config;
pub use server::Gateway;
