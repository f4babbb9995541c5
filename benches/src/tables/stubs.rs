use std::rc::Rc;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use crate::bench::Bench;
use crate::interleaved::Measure;
use crate::reading::{Reader, Reading, Way};
use crate::results::Sample;
use crate::stub::{StubOptions, StubProcess};

/// Reads from stubs in each turn.
pub(super) struct StubReads<F> {
    reader: Reader,
    times: u32,
    sample: F,
}

impl<F: Fn(&Reading) -> Sample> StubReads<F> {
    /// Creates the work of a turn, which reads `times` times. `sample` receives the averages.
    pub(super) fn new(reader: Reader, times: u32, sample: F) -> Self {
        Self {
            reader,
            times,
            sample,
        }
    }
}

impl<F: Fn(&Reading) -> Sample> Measure for StubReads<F> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let reading = self.reader.read(self.times)?;
            Ok((self.sample)(&reading))
        }
        .boxed_local()
    }
}

/// Starts stubs.
pub(super) fn start(bench: &Bench, options: StubOptions) -> Result<Rc<StubProcess>> {
    Ok(Rc::new(StubProcess::start(&bench.fleet_program, options)?))
}

/// Starts a process that reads from stubs.
pub(super) fn reader(
    bench: &Bench,
    stubs: &Rc<StubProcess>,
    way: Way,
    partitions: usize,
) -> Result<Reader> {
    Reader::start(&bench.fleet_program, stubs, way, partitions)
}

/// Returns megabytes (10⁶ bytes) of payload per second.
pub(super) fn mb_per_s(reading: &Reading, row_bytes: usize) -> f64 {
    let bytes = reading.rows as f64 * row_bytes as f64;
    bytes / 1e6 / (reading.total_ms / 1e3).max(1e-9)
}
