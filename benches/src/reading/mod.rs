//! Reading the rows of many workers, in several ways: with the gateway's own gather, and with what others do in its place.
//!
//! A way reads from stubs over connections that stand already, with the sockets' options and HTTP/2 windows that gateways have by default. It
//! runs in a [process] of its own: what one way leaves in the allocator is no other's, and the peak of the memory is its own.

/// Only the transport: all at once, each stream polled by its partition.
pub mod bare;
/// The gateway's gather.
pub mod gather;
/// One worker after another.
pub mod one_by_one;
/// Parts of the workers, each read by a task, as all ways but the gather divide them.
pub mod parts;
/// The process that reads.
pub mod process;
/// The stubs as the gateway's gather and the other ways meet them.
pub mod stubs;
/// A task and a channel per worker.
pub mod tasks;
/// The rows of one worker, for all ways but the gather.
pub mod worker;

pub use process::{Reader, Reading};
pub use stubs::StubCluster;

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

/// How the rows of many workers are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Way {
    /// Open and read one worker after another.
    OneByOne,
    /// Open all at once, with a task and a channel per worker.
    Tasks,
    /// With the gateway's gather.
    Gather,
    /// Open all at once, and forget what arrives.
    Bare,
    /// Open all at once, decode what arrives, and forget it.
    BareDecoded,
}

impl Way {
    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value()
            .map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// What one reading took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// Until the last stream was open.
    pub open: Duration,
    /// Until the last row was there.
    pub total: Duration,
    /// Rows that arrived.
    pub rows: u64,
}

/// Reads all rows of all stubs, in so many partitions.
///
/// # Errors
/// If a stub does not answer, or its rows are not complete.
pub async fn read(way: Way, stubs: &StubCluster, partitions: usize) -> Result<Outcome> {
    match way {
        Way::OneByOne => one_by_one::read(stubs).await,
        Way::Tasks => tasks::read(stubs, partitions).await,
        Way::Gather => gather::read(stubs, partitions).await,
        Way::Bare => bare::read(stubs, partitions, bare::Rows::Skipped).await,
        Way::BareDecoded => bare::read(stubs, partitions, bare::Rows::Decoded).await,
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
