use std::cell::RefCell;
use std::time::Duration;

use anyhow::Result;
use futures::FutureExt;
use futures::future::LocalBoxFuture;

use super::rows::RowSource;
use super::{Way, WriteRows, WritingClient};
use crate::clients::Clients;
use crate::disk_flushes::DiskFlushes;
use crate::interleaved::Measure;
use crate::results::Sample;
use crate::statistics::percentile;

/// A way of writing with its open connections. Variants that take turns share connections.
pub struct Writers {
    way: Box<dyn Way>,
    idle: RefCell<Vec<Box<dyn WriteRows>>>,
}

impl std::fmt::Debug for Writers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writers")
            .field("way", &self.way.name())
            .finish_non_exhaustive()
    }
}

impl Writers {
    /// Creates the writers of a way. Connections are opened when they are needed.
    pub fn new(way: impl Way + 'static) -> Self {
        Self {
            way: Box::new(way),
            idle: RefCell::default(),
        }
    }

    /// Returns the way of writing.
    pub fn way(&self) -> &dyn Way {
        self.way.as_ref()
    }

    /// Returns clients that write batches of `rows` rows, each on its own connection.
    ///
    /// # Errors
    /// Returns the errors of new connections.
    pub async fn clients(&self, count: usize, rows: usize) -> Result<Clients<WritingClient>> {
        let mut writers = self.idle.take();
        while writers.len() < count {
            writers.push(self.way.connect().await?);
        }
        self.idle.replace(writers.split_off(count));
        let clients = writers.into_iter().enumerate();
        let clients = clients.map(|(client, writer)| {
            let rows = RowSource::new(client, rows);
            WritingClient::new(writer, rows)
        });
        Ok(Clients::new(clients.collect()))
    }

    /// Takes the connections of clients back.
    pub fn give_back(&self, clients: Clients<WritingClient>) {
        let writers = clients.into_clients().into_iter();
        let mut idle = self.idle.borrow_mut();
        idle.extend(writers.map(WritingClient::into_writer));
    }
}

/// Clients that write into an empty table in each turn.
#[derive(Debug)]
pub struct Writing<'a> {
    /// The way of writing.
    pub writers: &'a Writers,
    /// The number of clients.
    pub clients: usize,
    /// The number of rows of a batch.
    pub rows: usize,
    /// The time for which the clients begin batches.
    pub time: Duration,
    /// The disk of the database, if it counts its flushes.
    pub disk: Option<&'a DiskFlushes>,
}

impl Writing<'_> {
    async fn write(&self) -> Result<Sample> {
        let way = self.writers.way();
        way.empty_table().await?;
        let mut clients = self.writers.clients(self.clients, self.rows).await?;
        let syncs_before = way.syncs().await?;
        let flushes_before = self.flushes()?;
        let answers = clients.ask_for(self.time, 1).await?;
        let flushes = self.flushes()?;
        let syncs = way.syncs().await?;
        self.writers.give_back(clients);
        let seconds = answers.total.as_secs_f64();
        let latencies_ms = answers.all_latencies_ms()?;
        let statements = latencies_ms.len() as f64;
        let mut sample = Sample::new()
            .with("rows_per_s", statements * self.rows as f64 / seconds)
            .with("statements_per_s", statements / seconds)
            .with("p50_ms", percentile(&latencies_ms, 50))
            .with("p99_ms", percentile(&latencies_ms, 99))
            .with("max_ms", percentile(&latencies_ms, 100));
        if let (Some(before), Some(after)) = (flushes_before, flushes) {
            sample = sample.with("disk_flushes_per_statement", (after - before) / statements);
        }
        if let (Some(before), Some(after)) = (syncs_before, syncs) {
            sample = sample.with("syncs_per_statement", (after - before) / statements);
        }
        Ok(sample)
    }

    fn flushes(&self) -> Result<Option<f64>> {
        let count = self.disk.map(DiskFlushes::count).transpose()?;
        Ok(count.map(|count| count as f64))
    }
}

impl Measure for Writing<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        self.write().boxed_local()
    }
}
