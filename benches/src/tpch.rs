//! The 22 queries of TPC-H.

use std::path::Path;

use anyhow::{Context, Result};
use datafusion::prelude::{ParquetReadOptions, SessionContext};
use volary_cli::client::Client;
use volary_cli::tpch;

use crate::interleaved::{Times, timed};
use crate::report::Line;

const SCHEMA: &str = include_str!("../../tests/queries/tpch/schema.sql");

/// The queries, by name.
///
/// # Errors
/// Those of the file system.
pub fn queries(directory: &Path) -> Result<Vec<(String, String)>> {
    (1..=22)
        .map(|number| {
            let name = format!("q{number:02}");
            let path = directory.join(format!("{name}.sql"));
            let sql = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            Ok((name, sql))
        })
        .collect()
}

/// Creates the tables and loads them from the Parquet files in `data`.
///
/// # Errors
/// Those of the statements.
pub async fn load(client: &mut Client, data: &Path) -> Result<()> {
    for statement in SCHEMA
        .split(';')
        .filter(|statement| !statement.trim().is_empty())
    {
        client.collect(statement).await?;
    }
    for table in tpch::tables() {
        let file = data.join(format!("{table}.parquet"));
        client
            .collect(&format!("COPY {table} FROM '{}'", file.display()))
            .await?;
    }
    Ok(())
}

/// One DataFusion process over the same files.
///
/// # Errors
/// Those of the files.
pub async fn datafusion(data: &Path) -> Result<SessionContext> {
    let context = SessionContext::new();
    for table in tpch::tables() {
        let file = data.join(format!("{table}.parquet"));
        let file = file.to_str().context("the path is no text")?;
        context
            .register_parquet(*table, file, ParquetReadOptions::default())
            .await?;
    }
    Ok(context)
}

/// Each query in turns: cluster, DataFusion, cluster, DataFusion … after one turn that is not counted.
///
/// # Errors
/// Those of the queries, and a different number of rows.
pub async fn compare(
    client: &mut Client,
    context: &SessionContext,
    queries: &[(String, String)],
    rounds: usize,
) -> Result<Vec<Line>> {
    let mut lines = Vec::new();
    for (name, sql) in queries {
        let mut line = Line {
            name: name.clone(),
            ours: Times::default(),
            theirs: Times::default(),
        };
        for round in 0..=rounds {
            let (ours, our_time) = timed(async { Ok(client.collect(sql).await?) })
                .await
                .with_context(|| format!("{name} on the cluster"))?;
            let (theirs, their_time) =
                timed(async { Ok(context.sql(sql).await?.collect().await?) })
                    .await
                    .with_context(|| format!("{name} in DataFusion"))?;
            let their_rows: usize = theirs.iter().map(|batch| batch.num_rows()).sum();
            anyhow::ensure!(
                ours.num_rows() == their_rows,
                "{name}: {} rows on the cluster, {their_rows} in DataFusion",
                ours.num_rows()
            );
            if round > 0 {
                line.ours.push(our_time);
                line.theirs.push(their_time);
            }
        }
        let (_, ours, _) = line.ours.spread_ms();
        let (_, ratio, _) = line.ours.ratio(&line.theirs);
        eprintln!("{name}: {ours:.1} ms, ratio {ratio:.2}");
        lines.push(line);
    }
    Ok(lines)
}
