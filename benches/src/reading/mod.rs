//! Each way to read gets its rows from stubs, over connections that are already open. The
//! connections have the socket options and HTTP/2 windows that gateways use by default. Each way
//! runs in a [process] of its own, so that it has its own allocator and its own peak of memory.

/// Measures only the transport: opens all streams at once, and polls each stream in its partition.
pub mod bare;
/// Reads with the gateway's gather.
pub mod gather;
/// Reads one worker after another: thousands of streams start in turn.
pub mod one_by_one;
/// Divides the stubs into equal parts, each read by a task, for all ways except the gather.
pub mod parts;
/// Runs the process that reads, and controls it from the measuring process.
pub mod process;
/// Provides the stubs to the gateway's gather and to the other ways.
pub mod stubs;
/// Reads with a task per worker: all tasks start at once, and every batch passes through a channel.
pub mod tasks;
/// Reads the rows of one worker, for all ways except the gather.
pub mod worker;

pub use process::{Reader, Reading};
pub use stubs::StubCluster;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

/// The way in which the rows of many workers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Opens and reads one worker after another.
    OneByOne,
    /// Opens all workers at once, with a task and a channel per worker.
    Tasks,
    /// Reads with the gateway's gather.
    Gather,
    /// Opens all workers at once, and drops what arrives.
    Bare,
    /// Opens all workers at once, decodes what arrives, and drops it.
    BareDecoded,
}

impl Way {
    /// Returns the name of the way on the command line.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// The times and the rows of one reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadOutcome {
    /// Time until the last stream was open.
    pub open: Duration,
    /// Time until the last row had arrived.
    pub total: Duration,
    /// Number of rows that arrived.
    pub rows: u64,
}

/// Reads all rows of all stubs, in `partitions` partitions.
///
/// # Errors
/// Returns an error if a stub does not answer, or its rows are not complete.
pub async fn read(way: Way, stubs: &StubCluster, partitions: usize) -> Result<ReadOutcome> {
    match way {
        Way::OneByOne => one_by_one::read(stubs).await,
        Way::Tasks => tasks::read(stubs, partitions).await,
        Way::Gather => gather::read(stubs, partitions).await,
        Way::Bare => bare::read(stubs, partitions, bare::RowHandling::Skipped).await,
        Way::BareDecoded => bare::read(stubs, partitions, bare::RowHandling::Decoded).await,
    }
}

#[cfg(test)]
mod tests {
    use volary_node::runtimes::OwnedRuntimes;

    use super::*;
    use crate::rows::RowShape;
    use crate::stub::{StubOptions, Stubs};

    #[test]
    fn every_way_reads_all_rows_of_all_stubs() {
        let runtimes = OwnedRuntimes::start(Some(2)).unwrap();
        let handles = runtimes.handles();
        handles.io().block_on(async {
            for coalesce_bytes in [None, Some(1_000)] {
                let options = StubOptions {
                    count: 5,
                    rows: 7,
                    row_bytes: 48,
                    batches: 11,
                    coalesce_bytes,
                };
                let stubs = Stubs::listen(&options).await.unwrap();
                let addresses: Vec<_> = stubs.addresses().iter().map(ToString::to_string).collect();
                let shape = RowShape::new(options.row_bytes).unwrap();
                let cluster = StubCluster::join(&addresses, shape, handles).await.unwrap();
                for way in Way::value_variants() {
                    for partitions in [1, 2, 8] {
                        let outcome = read(*way, &cluster, partitions).await.unwrap();
                        assert_eq!(outcome.rows, options.total_rows(), "{way:?}");
                        assert!(
                            Duration::ZERO < outcome.open && outcome.open <= outcome.total,
                            "{way:?}: {outcome:?}"
                        );
                    }
                }
            }
        });
    }
}
