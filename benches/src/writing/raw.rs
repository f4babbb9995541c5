//! These measurements need no database. They use the disk, the network and the encoder in the
//! simplest possible way.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::error::FlightError;
use arrow_flight::sql::ProstMessageExt;
use arrow_flight::{FlightData, FlightDescriptor, PutResult};
use futures::future::LocalBoxFuture;
use futures::{FutureExt, TryStreamExt, stream};
use parquet::arrow::ArrowWriter;
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use prost::Message;
use tokio::runtime::Handle;
use volary_node::channel::{ChannelOptions, NodeClient, flight_client};

use super::rows::{RowSource, schema};
use super::volary::append_command;
use crate::interleaved::Measure;
use crate::results::Sample;
use crate::statistics::percentile;

/// Size of a block of most disks and file systems.
const BLOCK_BYTES: usize = 4096;
/// Number of blocks of the file that are written in turn.
const BLOCKS: u64 = 256;

/// Does something again and again, and returns the latencies in milliseconds.
fn repeat(time: Duration, mut work: impl FnMut() -> Result<Duration>) -> Result<Vec<f64>> {
    let started = Instant::now();
    let mut latencies_ms = Vec::new();
    while latencies_ms.is_empty() || started.elapsed() < time {
        latencies_ms.push(work()?.as_secs_f64() * 1e3);
    }
    Ok(latencies_ms)
}

fn latencies(latencies_ms: &[f64]) -> Sample {
    Sample::new()
        .with("p50_ms", percentile(latencies_ms, 50))
        .with("p99_ms", percentile(latencies_ms, 99))
}

/// Overwrites a block of a file and syncs it with `fdatasync`. The file has its size and its blocks
/// from the start, so that a sync writes no metadata of the file system.
#[derive(Debug)]
pub struct BlockSync {
    file: File,
    next_block: u64,
    time: Duration,
}

impl BlockSync {
    /// Creates the file in a directory.
    ///
    /// # Errors
    /// Returns the errors of the file system.
    pub fn new(directory: &Path, time: Duration) -> Result<Self> {
        let path = directory.join("blocks");
        let write = || {
            let file = File::create(&path)?;
            file.write_all_at(&vec![0; BLOCK_BYTES * BLOCKS as usize], 0)?;
            file.sync_all()?;
            Ok::<_, std::io::Error>(file)
        };
        let file = write().with_context(|| format!("cannot write {}", path.display()))?;
        Ok(Self {
            file,
            next_block: 0,
            time,
        })
    }

    fn sync_block(&mut self) -> Result<Duration> {
        let number = self.next_block;
        self.next_block += 1;
        let block = [number as u8; BLOCK_BYTES];
        let started = Instant::now();
        let offset = number % BLOCKS * BLOCK_BYTES as u64;
        self.file.write_all_at(&block, offset)?;
        self.file.sync_data()?;
        Ok(started.elapsed())
    }
}

impl Measure for BlockSync {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let time = self.time;
            Ok(latencies(&repeat(time, || self.sync_block())?))
        }
        .boxed_local()
    }
}

/// Sends a row to a stub with DoPut, in the same messages as to a gateway, and waits for the
/// answer.
#[derive(Debug)]
pub struct RoundTrip {
    client: NodeClient,
    messages: Vec<FlightData>,
    time: Duration,
}

impl RoundTrip {
    /// Encodes the messages for the stub at `host:port`.
    ///
    /// # Errors
    /// Returns an error if the address is not valid.
    pub async fn new(stub: &str, time: Duration) -> Result<Self> {
        let command = append_command().as_any().encode_to_vec();
        let row = RowSource::new(0, 1).next_batch()?;
        let messages = FlightDataEncoderBuilder::new()
            .with_flight_descriptor(Some(FlightDescriptor::new_cmd(command)))
            .build(stream::iter([Ok::<_, FlightError>(row)]));
        Ok(Self {
            client: flight_client(stub, &ChannelOptions::default(), &Handle::current())?,
            messages: messages.try_collect().await?,
            time,
        })
    }

    async fn put(&mut self) -> Result<()> {
        let messages = stream::iter(self.messages.clone());
        let answer = self.client.do_put(messages).await?;
        let answer: Vec<PutResult> = answer.into_inner().try_collect().await?;
        anyhow::ensure!(answer.len() == 1, "{} answers, not 1", answer.len());
        Ok(())
    }
}

impl Measure for RoundTrip {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let begun = Instant::now();
            let mut latencies_ms = Vec::new();
            while latencies_ms.is_empty() || begun.elapsed() < self.time {
                let started = Instant::now();
                self.put().await?;
                latencies_ms.push(started.elapsed().as_secs_f64() * 1e3);
            }
            Ok(latencies(&latencies_ms))
        }
        .boxed_local()
    }
}

/// Writes each batch to a new Parquet file, with the compression of segments, and syncs it. One
/// thread does this.
#[derive(Debug)]
pub struct PlainParquet {
    directory: PathBuf,
    rows: usize,
    source: RowSource,
    time: Duration,
}

impl PlainParquet {
    /// Writes batches of `rows` rows to files in a directory.
    pub fn new(directory: &Path, rows: usize, time: Duration) -> Self {
        Self {
            directory: directory.to_owned(),
            rows,
            source: RowSource::new(0, rows),
            time,
        }
    }

    fn write_file(&mut self) -> Result<Duration> {
        let path = self.directory.join("plain.parquet");
        let batch = self.source.next_batch()?;
        let started = Instant::now();
        let properties = WriterProperties::builder()
            .set_compression(Compression::LZ4_RAW)
            .build();
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut writer = ArrowWriter::try_new(file, schema(), Some(properties))?;
        writer.write(&batch)?;
        writer.into_inner()?.sync_data()?;
        let took = started.elapsed();
        std::fs::remove_file(&path)?;
        Ok(took)
    }
}

impl Measure for PlainParquet {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        async move {
            let time = self.time;
            let latencies_ms = repeat(time, || self.write_file())?;
            let seconds = latencies_ms.iter().sum::<f64>() / 1e3;
            let files = latencies_ms.len() as f64;
            Ok(latencies(&latencies_ms)
                .with("rows_per_s", files * self.rows as f64 / seconds)
                .with("statements_per_s", files / seconds))
        }
        .boxed_local()
    }
}
