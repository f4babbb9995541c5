use std::cell::RefCell;
use std::time::Duration;

use anyhow::{Result, ensure};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};

use super::rows::KeySource;
use super::{LookUp, Way};
use crate::clients::{Ask, Clients};
use crate::interleaved::Measure;
use crate::procfs::ObservedProcess;
use crate::results::Sample;
use crate::statistics::percentile;

/// A way of asking with its open connections. Variants that take turns share connections.
pub struct Askers {
    way: Box<dyn Way>,
    idle: RefCell<Vec<LookingUpClient>>,
    rows: u64,
}

/// A client that asks for one batch of keys after another.
struct LookingUpClient {
    connection: Box<dyn LookUp>,
    keys: KeySource,
    batch_keys: usize,
}

/// Clients that ask for a fixed time in each turn.
#[derive(Debug)]
pub struct LookingUp<'a> {
    /// The way of asking.
    pub askers: &'a Askers,
    /// The number of clients.
    pub clients: usize,
    /// The number of keys of a batch.
    pub keys: usize,
    /// The time for which the clients begin batches.
    pub time: Duration,
}

impl std::fmt::Debug for Askers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Askers")
            .field("way", &self.way.name())
            .finish_non_exhaustive()
    }
}

impl Askers {
    /// Creates the askers of a way, in a table of this many rows. Connections are opened when they
    /// are needed.
    pub fn new(way: impl Way + 'static, rows: u64) -> Self {
        Self {
            way: Box::new(way),
            idle: RefCell::default(),
            rows,
        }
    }

    /// Returns the way of asking.
    pub fn way(&self) -> &dyn Way {
        self.way.as_ref()
    }

    async fn clients(&self, count: usize, keys: usize) -> Result<Clients<LookingUpClient>> {
        let mut clients = self.idle.take();
        while clients.len() < count {
            clients.push(LookingUpClient {
                connection: self.way.connect().await?,
                keys: KeySource::new(clients.len(), self.rows),
                batch_keys: keys,
            });
        }
        self.idle.replace(clients.split_off(count));
        for client in &mut clients {
            client.batch_keys = keys;
        }
        Ok(Clients::new(clients))
    }
}

impl Ask for LookingUpClient {
    fn ask(&mut self, _: usize) -> (&'static str, BoxFuture<'_, Result<()>>) {
        let asking = async move {
            let keys = self.keys.next_keys(self.batch_keys);
            let found = self.connection.look_up(keys).await?;
            // PostgreSQL returns the row of a key that is asked for twice only once.
            let least = self.batch_keys - self.batch_keys / 10;
            ensure!(
                (least..=self.batch_keys).contains(&found),
                "{found} rows were found for {} keys",
                self.batch_keys
            );
            Ok(())
        };
        ("lookup", asking.boxed())
    }
}

impl LookingUp<'_> {
    async fn look_up(&self) -> Result<Sample> {
        let mut clients = self.askers.clients(self.clients, self.keys).await?;
        let process = self.askers.way.process();
        let work = process.as_ref().map(ObservedProcess::work).transpose()?;
        let answers = clients.ask_for(self.time, 1).await?;
        let later = process.as_ref().map(ObservedProcess::work).transpose()?;
        self.askers.idle.borrow_mut().extend(clients.into_clients());
        let seconds = answers.total.as_secs_f64();
        let latencies_ms = answers.all_latencies_ms()?;
        let batches = latencies_ms.len() as f64;
        let keys = batches * self.keys as f64;
        let mut sample = Sample::new()
            .with("keys_per_s", keys / seconds)
            .with("p50_ms", percentile(&latencies_ms, 50))
            .with("p99_ms", percentile(&latencies_ms, 99));
        if let (Some(before), Some(after)) = (work, later) {
            let cpu = after.since(&before).processor_time.as_secs_f64();
            sample = sample
                .with("server_cpu_ms_per_batch", cpu * 1e3 / batches)
                .with("server_cpu_us_per_key", cpu * 1e6 / keys);
        }
        Ok(sample)
    }
}

impl Measure for LookingUp<'_> {
    fn measure(&mut self) -> LocalBoxFuture<'_, Result<Sample>> {
        self.look_up().boxed_local()
    }
}
