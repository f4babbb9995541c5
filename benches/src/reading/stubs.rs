use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use arrow::datatypes::SchemaRef;
use arrow_flight::Ticket;
use bytes::Bytes;
use datafusion::execution::TaskContext;
use datafusion::prelude::SessionConfig;
use tokio::runtime::Handle;
use volary_catalog::{
    Catalog, CommitError, EntryChange, ExpectedVersion, MetadataStore, StoreContent,
};
use volary_flight_proto::ids::{QueryId, WorkerId};
use volary_flight_proto::lineage::Lineage;
use volary_flight_proto::membership::JoinRequest;
use volary_flight_proto::seal::{Purpose, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_gateway::Config;
use volary_gateway::cluster::Cluster;
use volary_node::Runtimes;
use volary_node::channel::{ChannelOptions, NodeClient, flight_client};
use volary_planner::gather::{QueryContext, RunSpan, WorkerTarget};

use crate::rows::RowShape;

/// Time after which the cluster declares a stub lost. It is long, because stubs send nothing
/// between queries.
const LOST_AFTER: Duration = Duration::from_secs(24 * 60 * 60);
/// The content of a ticket. It is about as large as a fragment's ticket when the worker knows the
/// fragment.
const TICKET: &[u8] = &[0; 128];
const TICKET_LIFETIME: Duration = Duration::from_secs(60);

/// A cluster whose workers are stubs, with a connection to each of them. Clones share the cluster.
#[derive(Debug, Clone)]
pub struct StubCluster {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: Config,
    cluster: Arc<Cluster>,
    /// The stubs in the order of their ids.
    stubs: Vec<Stub>,
    sealer: Sealer,
    schema: SchemaRef,
    cpu: Handle,
}

/// A stub of the cluster.
#[derive(Debug, Clone)]
pub struct Stub {
    /// The worker id with which the stub has joined.
    pub id: WorkerId,
    /// The connection of all ways except the gather, which has its own. It is opened at its first
    /// use, and all readings share it.
    pub client: NodeClient,
}

impl StubCluster {
    /// Lets the stubs at these addresses join a new cluster. `shape` is the shape of their rows.
    /// The I/O runtime opens the connections.
    ///
    /// # Errors
    /// Returns an error if an address is not valid.
    pub async fn join(addresses: &[String], shape: RowShape, runtimes: &Runtimes) -> Result<Self> {
        let mut config = Config::default();
        config.cluster.lost_after = LOST_AFTER;
        let catalog = Catalog::open(Arc::new(NullStore::default())).await?;
        let gateway = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let cluster = Cluster::new(&config, gateway, catalog, None, runtimes.io().clone(), None);
        let mut stubs = Vec::with_capacity(addresses.len());
        for address in addresses {
            let peer: SocketAddr = address
                .parse()
                .with_context(|| format!("\"{address}\" is no address"))?;
            let request = JoinRequest {
                address: address.clone(),
                instance: address.clone(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                ..JoinRequest::default()
            };
            let joined = cluster.join(request, peer).await?;
            stubs.push(Stub {
                id: WorkerId(joined.worker_id),
                client: flight_client(address, &ChannelOptions::default(), runtimes.io())?,
            });
        }
        let sealer = cluster.sealer().clone();
        let inner = Inner {
            config,
            cluster,
            stubs,
            sealer,
            schema: shape.schema(),
            cpu: runtimes.cpu().clone(),
        };
        Ok(Self {
            inner: Arc::new(inner),
        })
    }

    /// Returns all stubs in the order of their ids.
    pub fn stubs(&self) -> &[Stub] {
        &self.inner.stubs
    }

    /// Returns the schema of the stubs' rows.
    pub fn schema(&self) -> SchemaRef {
        Arc::clone(&self.inner.schema)
    }

    /// Returns the runtime on which rows are read. Plans run on the same runtime.
    pub fn cpu(&self) -> &Handle {
        &self.inner.cpu
    }

    /// Returns a ticket that costs as much to make as the ticket of a fragment. Stubs accept any
    /// ticket.
    pub fn sealed_ticket(&self) -> Ticket {
        let content = Bytes::from_static(TICKET);
        let sealer = &self.inner.sealer;
        Ticket {
            ticket: sealer.seal(Purpose::Fragment, &content, TICKET_LIFETIME),
        }
    }

    /// Returns a ticket that costs nothing to make.
    pub fn bare_ticket(&self) -> Ticket {
        Ticket {
            ticket: Bytes::from_static(TICKET),
        }
    }

    /// Returns all stubs as targets of a gather.
    pub fn targets(&self) -> Vec<WorkerTarget> {
        let targets = self.stubs().iter().map(|stub| WorkerTarget {
            worker: stub.id,
            replicas: Vec::new(),
            scans: Vec::new(),
            members: Vec::new(),
        });
        targets.collect()
    }

    /// Returns the context in which the plan of a new query runs.
    pub fn task(&self) -> Arc<TaskContext> {
        let query = QueryContext {
            query_id: QueryId::new(),
            owner: 0,
            snapshot: Snapshot::default(),
            counted_writes: None,
            as_of_us: 0,
            lineage: Lineage::default(),
            tables: Vec::new(),
            peers: Arc::clone(&self.inner.cluster) as _,
            config: self.inner.config.gather.clone(),
            with_plan_metrics: false,
            memory: self.inner.config.query.memory.bytes(),
            span: RunSpan::default(),
        };
        let config = SessionConfig::new().with_extension(Arc::new(query));
        Arc::new(TaskContext::default().with_session_config(config))
    }
}

/// A catalog's store that keeps nothing. The catalog holds all data that it needs in memory, and a
/// disk would only delay thousands of joins.
#[derive(Debug, Default)]
struct NullStore {
    revision: AtomicU64,
}

#[tonic::async_trait]
impl MetadataStore for NullStore {
    async fn load(&self) -> volary_flight_proto::Result<StoreContent> {
        Ok(StoreContent::default())
    }

    async fn commit(
        &self,
        _: Vec<ExpectedVersion>,
        _: Vec<EntryChange>,
    ) -> Result<u64, CommitError> {
        Ok(self.revision.fetch_add(1, Ordering::Relaxed) + 1)
    }
}
