use anyhow::{Context, Result};
use arrow::array::AsArray;
use arrow::datatypes::Float64Type;
use volary_cli::client::Client;

use crate::bench::Bench;
use crate::local_process::LocalProcess;

/// Starts a cluster in a process of its own, which serves metrics.
pub(super) fn start(bench: &Bench, name: &str) -> Result<LocalProcess> {
    let program = bench.volary_program();
    let listens = [("VOLARY_OPERATIONS__LISTEN", "127.0.0.1:0".to_owned())];
    let directory = bench.scratch(&format!("{name}-cluster"));
    LocalProcess::start(name, &program, &directory, &listens)
}

/// Returns the number that a query returns. NULL is 0.
pub(super) async fn number(client: &mut Client, expression: &str, from: &str) -> Result<f64> {
    let sql = format!("SELECT CAST({expression} AS DOUBLE) FROM {from}");
    let rows = client.collect(&sql).await?;
    let column = rows.columns().first().context("a query without a column")?;
    let number = column.as_primitive::<Float64Type>().iter().flatten().next();
    Ok(number.unwrap_or_default())
}

/// The files of a table, and the rows that are in none of them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stored {
    /// Number of segments.
    pub(super) segments: f64,
    /// Number of rows that are in logs and in no segment yet.
    pub(super) log_rows: f64,
}

impl Stored {
    /// Reads how a table is stored. The table system.segments lists each part of a log, too.
    pub(super) async fn read(client: &mut Client, table: &str) -> Result<Self> {
        let parts = |which: &str| {
            format!("system.segments WHERE table_name = '{table}' AND file {which} 'log/%'")
        };
        Ok(Self {
            segments: number(client, "count(*)", &parts("NOT LIKE")).await?,
            log_rows: number(client, "sum(rows)", &parts("LIKE")).await?,
        })
    }
}
