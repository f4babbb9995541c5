//! Each stub has its own listener, with the real socket options, and answers every DoGet. Because
//! its messages were encoded beforehand, reading them costs what the transport costs.
//!
//! Stubs accept any ticket. They run in a process of their own, so that their processor time can be
//! told from that of the reader.

/// Encodes the answer of a stub.
pub mod answer;
/// Runs stubs that stand in for a gateway, for the drivers of clients.
pub mod driver;
/// Starts the process that stubs run in.
pub mod process;
/// Implements the Flight service of a stub.
pub mod service;

pub use process::StubProcess;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use tokio::task::JoinSet;
use volary_node::flight::{Flight, FlightAdapter};
use volary_node::listener::Listener;
use volary_node::message_limit::MessageLimit;
use volary_node::server::{Entrance, serve};

use answer::StubAnswer;
use service::StubService;

/// The limit for messages to a stub. Stubs receive only tickets, statements and their parameters.
const MESSAGE_LIMIT: MessageLimit = MessageLimit {
    bytes: 1 << 20,
    setting: "a stub",
};

/// The number of stubs, and what each of them sends.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StubOptions {
    /// Number of stubs.
    #[arg(long)]
    pub count: usize,
    /// Number of rows in a batch.
    #[arg(long)]
    pub rows: usize,
    /// Payload bytes of a row: 8, or 16 and more.
    #[arg(long)]
    pub row_bytes: usize,
    /// Number of batches.
    #[arg(long)]
    pub batches: usize,
    /// Target size of a message in bytes: batches become messages of about this size, as on
    /// workers. Without it, each batch is one message.
    #[arg(long)]
    pub coalesce_bytes: Option<usize>,
}

impl StubOptions {
    /// Returns the number of rows of all stubs together.
    pub fn total_rows(&self) -> u64 {
        (self.count * self.rows * self.batches) as u64
    }

    /// Returns the options as arguments of the command line.
    fn arguments(&self) -> Vec<String> {
        let mut arguments = vec![
            format!("--count={}", self.count),
            format!("--rows={}", self.rows),
            format!("--row-bytes={}", self.row_bytes),
            format!("--batches={}", self.batches),
        ];
        arguments.extend(
            self.coalesce_bytes
                .map(|bytes| format!("--coalesce-bytes={bytes}")),
        );
        arguments
    }
}

/// Stubs that listen on ports that the system chose. Dropping them ends them.
#[derive(Debug)]
pub struct Stubs {
    addresses: Vec<SocketAddr>,
    /// The tasks that serve the stubs until they are dropped.
    _servers: JoinSet<()>,
}

impl Stubs {
    /// Starts stubs that listen. Call it within a runtime, which then serves them.
    ///
    /// # Errors
    /// Returns an error if rows with these options are not possible, or if no more files may be
    /// open.
    pub async fn listen(options: &StubOptions) -> Result<Self> {
        let service = StubService::new(Arc::new(StubAnswer::encode(options).await?));
        Self::serve(options.count, || Ok(service.clone()))
    }

    /// Starts `count` stubs. `service` makes the service of each.
    fn serve<F: Flight>(count: usize, service: impl Fn() -> Result<F>) -> Result<Self> {
        let mut addresses = Vec::with_capacity(count);
        let mut servers = JoinSet::new();
        for _ in 0..count {
            let service = service()?;
            let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
            addresses.push(listener.address());
            servers.spawn(serve(
                listener,
                FlightAdapter(service),
                Entrance::unguarded(MESSAGE_LIMIT),
                std::future::pending(),
            ));
        }
        Ok(Self {
            addresses,
            _servers: servers,
        })
    }

    /// Returns the addresses of the stubs.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}
