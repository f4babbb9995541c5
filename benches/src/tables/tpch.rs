use std::path::Path;

use anyhow::{Context, Result};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use futures::FutureExt;
use futures::future::LocalBoxFuture;
use volary_cli::tpch;

use super::BenchTable;
use super::engines::{Engine, compare};
use super::loaded_cluster::LoadedCluster;
use crate::bench::Bench;
use crate::results::Variant;

pub(super) const TABLE: BenchTable = BenchTable {
    name: "tpch",
    title: "TPC-H",
    method: "Each query runs in turns on an embedded cluster (a gateway and its workers in one process, real Flight over loopback, 64 shards per table), and in DataFusion over the Parquet files that were loaded. These files are compressed like the cluster's segments. DataFusion runs in the same process with the same allocator. The total of a turn is the sum over all queries.",
    run: |bench| run(bench).boxed_local(),
};

async fn run(bench: &Bench) -> Result<Vec<Variant>> {
    let mut loaded = LoadedCluster::start(bench).await?;
    let mut datafusion = DataFusion::over(&loaded.data).await?;
    let measured = compare(bench, &mut loaded, &mut datafusion).await?;
    loaded.shutdown().await;
    Ok(measured)
}

/// DataFusion in this process.
struct DataFusion(SessionContext);

impl DataFusion {
    /// Creates tables over the Parquet files that were loaded.
    async fn over(data: &Path) -> Result<Self> {
        let context = SessionContext::new();
        for table in tpch::tables() {
            let file = data.join(format!("{table}.parquet"));
            let file = file.to_str().context("the path is no text")?;
            context
                .register_parquet(*table, file, ParquetReadOptions::default())
                .await?;
        }
        Ok(Self(context))
    }
}

impl Engine for DataFusion {
    const NAME: &'static str = "DataFusion";

    fn answer<'a>(&'a mut self, sql: &'a str) -> LocalBoxFuture<'a, Result<usize>> {
        async move {
            let batches = self.0.sql(sql).await?.collect().await?;
            let rows = batches.iter().map(|batch| batch.num_rows());
            Ok(rows.sum::<usize>())
        }
        .boxed_local()
    }
}
