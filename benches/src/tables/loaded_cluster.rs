use std::path::PathBuf;

use anyhow::Result;
use volary_cli::client::Client;
use volary_cli::settings::Settings;
use volary_cli::{LocalCluster, LocalOptions, tpch};

use crate::bench::Bench;

const SCHEMA: &str = include_str!("../../../tests/queries/tpch/schema.sql");

/// An embedded cluster with TPC-H data. It runs in this process, so that both sides of a comparison
/// have the same allocator and the same processors.
#[derive(Debug)]
pub(super) struct LoadedCluster {
    cluster: LocalCluster,
    pub(super) client: Client,
    /// The directory of the Parquet files.
    pub(super) data: PathBuf,
    pub(super) scale: f64,
}

impl LoadedCluster {
    /// Starts the cluster. Generates and loads the files unless an earlier table or run has done
    /// so.
    pub(super) async fn start(bench: &Bench) -> Result<Self> {
        let scale = bench.tpch.scale;
        let scale = scale.unwrap_or(bench.size.pick(0.001, 0.05, 1.0));
        let data = bench.data_dir.join(format!("tpch-{scale}"));
        if !data.is_dir() {
            std::fs::create_dir_all(&data)?;
            tpch::write_parquet(&data, scale, &mut |_, _| {})?;
        }
        let mut settings = Settings::default();
        settings.local.workers = bench.tpch.workers;
        settings.local.data_dir = bench.data_dir.join(format!("cluster-{scale}"));
        settings.local.listen.set_port(0);
        // Rows pass the network stack, as they do between the machines of a cluster.
        settings.local.in_process_calls = false;
        settings.gateway.load.allowed_roots = vec![bench.data_dir.to_string_lossy().into_owned()];
        let is_new = !settings.local.data_dir.is_dir();
        let options = LocalOptions::new(settings, bench.runtimes.clone());
        let cluster = LocalCluster::start(options).await?;
        let client = Client::connect(&cluster.uri()).await?;
        let mut loaded = Self {
            cluster,
            client,
            data,
            scale,
        };
        if is_new {
            loaded.load().await?;
        }
        Ok(loaded)
    }

    async fn load(&mut self) -> Result<()> {
        create_tables(&mut self.client).await?;
        for table in tpch::tables() {
            let file = self.data.join(format!("{table}.parquet"));
            let copy = format!("COPY {table} FROM '{}'", file.display());
            self.client.collect(&copy).await?;
        }
        Ok(())
    }

    /// Stops the cluster in an orderly way.
    pub(super) async fn shutdown(self) {
        drop(self.client);
        self.cluster.shutdown().await;
    }
}

/// Creates the empty tables of TPC-H.
pub(super) async fn create_tables(client: &mut Client) -> Result<()> {
    let statements = SCHEMA.split(';');
    for statement in statements.filter(|statement| !statement.trim().is_empty()) {
        client.collect(statement).await?;
    }
    Ok(())
}
