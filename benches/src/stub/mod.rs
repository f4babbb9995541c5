//! Stand-ins for workers: each has its listener, with the sockets' real options, and answers every DoGet with messages that were encoded
//! beforehand. What reading them costs is what the transport costs.
//!
//! They take any ticket, and run in a process of their own, so that the processor time of the one that reads can be told from theirs.

/// What a stub sends.
pub mod answer;
/// The process that stubs run in.
pub mod process;
/// The Flight service of a stub.
pub mod service;

pub use process::StubProcess;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use tokio::task::JoinSet;
use volary_node::listener::Listener;
use volary_node::message_limit::MessageLimit;
use volary_node::serving::{Access, serve};

use answer::Answer;
use service::StubService;

/// Tickets are all that stubs are sent.
const LIMIT: MessageLimit = MessageLimit {
    bytes: 1 << 20,
    setting: "a stub",
};

/// How many stubs there are, and what each of them sends.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct StubOptions {
    /// Stubs.
    #[arg(long)]
    pub count: usize,
    /// Rows of a batch.
    #[arg(long)]
    pub rows: usize,
    /// Payload bytes of a row: 8, or 16 and more.
    #[arg(long)]
    pub row_bytes: usize,
    /// Batches.
    #[arg(long)]
    pub batches: usize,
    /// Batches become messages of about so many bytes, as workers make them. Without it, each is one message.
    #[arg(long)]
    pub coalesce_bytes: Option<usize>,
}

impl StubOptions {
    /// Rows of all stubs together.
    pub fn total_rows(&self) -> u64 {
        (self.count * self.rows * self.batches) as u64
    }

    /// As the command line has them.
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

/// Stubs that listen, on ports of the system's choice. Dropping them ends them.
#[derive(Debug)]
pub struct Stubs {
    addresses: Vec<SocketAddr>,
    /// Each serves until it is dropped.
    _servers: JoinSet<()>,
}

impl Stubs {
    /// Must be called within a runtime, which serves them.
    ///
    /// # Errors
    /// If there are no such rows, or no more files may be open.
    pub async fn listen(options: &StubOptions) -> Result<Self> {
        let service = StubService::new(Arc::new(Answer::encode(options).await?));
        let mut addresses = Vec::with_capacity(options.count);
        let mut servers = JoinSet::new();
        for _ in 0..options.count {
            let listener = Listener::bind((Ipv4Addr::LOCALHOST, 0).into())?;
            addresses.push(listener.address());
            servers.spawn(serve(
                listener,
                service.clone(),
                Access::open(LIMIT),
                std::future::pending(),
            ));
        }
        Ok(Self {
            addresses,
            _servers: servers,
        })
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}
