//! A [`Way`] is a database and a method of asking for the rows of keys. All ways ask for the same
//! rows, which [`rows`] describes.

/// Asks for batches of keys again and again, and measures that.
pub mod measured;
/// Asks PostgreSQL with a prepared statement.
pub mod postgres;
/// Describes the rows, and chooses keys.
pub mod rows;
/// Asks Volary on a stream of lookups.
pub mod volary;

use anyhow::Result;
use futures::future::{BoxFuture, LocalBoxFuture};

use crate::procfs::ObservedProcess;

/// A connection that asks for rows.
pub trait LookUp: Send + 'static {
    /// Asks for the rows of these keys, and returns how many rows were read.
    fn look_up(&mut self, keys: Vec<i64>) -> BoxFuture<'_, Result<usize>>;
}

/// A way of asking.
pub trait Way {
    /// Returns the name of the way, for people.
    fn name(&self) -> &'static str;

    /// Opens a connection.
    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn LookUp>>>;

    /// Returns the process of the database, if it is a single one.
    fn process(&self) -> Option<ObservedProcess>;
}
