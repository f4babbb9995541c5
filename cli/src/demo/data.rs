use std::path::Path;
use std::time::{Duration, Instant};

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::{DataType, UInt64Type};
use indicatif::{ProgressBar, ProgressStyle};
use tokio::time::{MissedTickBehavior, interval};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::client::Client;
use crate::sql::split;
use crate::{terminal, tpch};

/// The statements that create the tables. The tests use the same file.
const SCHEMA: &str = include_str!(concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../tests/queries/tpch/schema.sql"
));
const BAR_TEMPLATE: &str = "  {prefix:<9} {wide_bar} {human_pos:>10} / {human_len} rows  {per_sec}";
/// Interval at which the progress of a load is queried.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(200);
const PROGRESS_QUERY: &str = "SELECT CAST(rows_written AS BIGINT) AS rows FROM system.loads";

/// Checks that TPC-H data of this scale can be generated.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` with the scales that are accepted.
pub fn check_scale(scale: f64) -> Result<()> {
    expected_rows("orders", scale).map(drop)
}

/// Writes the eight tables to `<table>.parquet` in `dir`, and shows a progress bar. Returns the
/// total number of rows.
///
/// # Errors
/// Returns `INVALID_ARGUMENT` if the scale is not accepted, and the errors of the file system.
pub fn write(dir: &Path, scale: f64) -> Result<u64> {
    check_scale(scale)?;
    let start = Instant::now();
    let mut current: Option<(String, ProgressBar)> = None;
    let written = tpch::write_parquet(dir, scale, &mut |table, rows| {
        if current.as_ref().is_none_or(|(name, _)| name != table) {
            let bar = bar(table, tpch::expected_rows(table, scale).unwrap_or(rows));
            if let Some((_, before)) = current.replace((table.to_owned(), bar)) {
                before.finish_and_clear();
            }
        }
        if let Some((_, bar)) = &current {
            bar.set_position(rows);
        }
    });
    if let Some((_, bar)) = current {
        bar.finish_and_clear();
    }
    let rows = written
        .map_err(|error| write_error(&error))?
        .iter()
        .map(|(_, rows)| rows)
        .sum();
    terminal::print_line(&format!(
        "\nGenerated TPC-H data at scale {scale}: {} in {}, {} ({})",
        terminal::plural(rows, "row"),
        dir.display(),
        terminal::duration(start.elapsed()),
        terminal::rate(rows, start.elapsed()),
    ))?;
    Ok(rows)
}

/// Creates the tables that do not exist, and loads those that are empty. Tables that were loaded
/// earlier are used unchanged.
///
/// # Errors
/// Returns the errors of the statements.
pub async fn load(client: &mut Client, dir: &Path, scale: f64) -> Result<()> {
    let empty = create_tables(client).await?;
    if empty.is_empty() {
        return report_existing_tables(client, scale).await;
    }
    generate_files(dir, scale).await?;
    terminal::print_line(&format!(
        "Loading {} with COPY",
        terminal::plural(empty.len() as u64, "table")
    ))?;
    let start = Instant::now();
    let mut total = 0;
    for table in empty {
        total += copy(client, table, dir, scale).await?;
    }
    terminal::print_line(&format!(
        "  {:<9} {:>12} rows  {:>8}  {}",
        "all",
        terminal::count(total),
        terminal::duration(start.elapsed()),
        terminal::rate(total, start.elapsed()),
    ))
}

/// Creates the tables that do not exist. Returns the tables that have no rows.
async fn create_tables(client: &mut Client) -> Result<Vec<&'static str>> {
    let existing = client.collect("SELECT name FROM system.tables").await?;
    let existing = texts(&existing)?;
    let mut empty = Vec::new();
    let (statements, _) = split(SCHEMA);
    for table in tpch::tables() {
        if !existing.iter().any(|name| name == table) {
            let start = format!("CREATE TABLE {table} ");
            let statement = statements
                .iter()
                .find(|statement| statement.contains(&start));
            let statement = statement
                .ok_or_else(|| Error::internal(format!("the schema of TPC-H has no {table}")))?;
            client.collect(statement).await?;
        }
        if count(client, table).await? == 0 {
            empty.push(*table);
        }
    }
    Ok(empty)
}

async fn report_existing_tables(client: &mut Client, scale: f64) -> Result<()> {
    let orders = count(client, "orders").await?;
    let other_scale = if orders == expected_rows("orders", scale)? {
        ""
    } else {
        ", which are of another scale; give another --data-dir for this scale"
    };
    terminal::print_line(&format!(
        "\nUsing the tables of an earlier run ({}{other_scale})",
        terminal::plural(orders, "order")
    ))
}

/// Generates the files unless all of them exist. A file gets its name only when it is complete, so
/// an existing file need not be generated again.
async fn generate_files(dir: &Path, scale: f64) -> Result<()> {
    let is_there = |table: &&str| dir.join(format!("{table}.parquet")).is_file();
    if tpch::tables().iter().all(is_there) {
        return Ok(());
    }
    let dir = dir.to_owned();
    tokio::task::spawn_blocking(move || write(&dir, scale).map(drop))
        .await
        .unwrap_or_else(|source| {
            Err(Error::with_source(
                ErrorCode::Internal,
                "generating the data panicked",
                source,
            ))
        })
}

async fn copy(client: &mut Client, table: &str, dir: &Path, scale: f64) -> Result<u64> {
    let path = dir.join(format!("{table}.parquet"));
    // SQL doubles a quote within a string.
    let path = path.to_string_lossy().replace('\'', "''");
    let statement = format!("COPY {table} FROM '{path}'");
    let bar = bar(table, expected_rows(table, scale)?);
    let mut progress_client = Client::connect(client.uri()).await.ok();
    let mut ticks = interval(PROGRESS_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let start = Instant::now();
    let copied = {
        let copying = client.collect(&statement);
        tokio::pin!(copying);
        loop {
            tokio::select! {
                copied = &mut copying => break copied,
                _ = ticks.tick(), if progress_client.is_some() => {
                    if let Some(rows) = progress(&mut progress_client).await {
                        bar.set_position(rows);
                    }
                }
            }
        }
    };
    let time = start.elapsed();
    bar.finish_and_clear();
    copied?;
    let rows = count(client, table).await?;
    terminal::print_line(&format!(
        "  {table:<9} {:>12} rows  {:>8}  {}",
        terminal::count(rows),
        terminal::duration(time),
        terminal::rate(rows, time)
    ))?;
    Ok(rows)
}

/// Returns the rows that the load has written so far. After the first error, drops
/// `progress_client` and queries no more, because the progress is not important enough to fail the
/// load.
async fn progress(progress_client: &mut Option<Client>) -> Option<u64> {
    match progress_client
        .as_mut()?
        .collect(PROGRESS_QUERY)
        .await
        .and_then(|rows| sum(&rows))
    {
        Ok(rows) => Some(rows),
        Err(error) => {
            tracing::debug!(%error, "cannot query the progress of the load");
            *progress_client = None;
            None
        }
    }
}

async fn count(client: &mut Client, table: &str) -> Result<u64> {
    sum(&client
        .collect(&format!("SELECT count(*) FROM {table}"))
        .await?)
}

/// Returns the sum of the first column.
fn sum(rows: &RecordBatch) -> Result<u64> {
    let column = cast(rows.column(0), &DataType::UInt64).map_err(unexpected_type)?;
    Ok(column.as_primitive::<UInt64Type>().iter().flatten().sum())
}

fn texts(rows: &RecordBatch) -> Result<Vec<String>> {
    let column = cast(rows.column(0), &DataType::Utf8).map_err(unexpected_type)?;
    let texts = column.as_string::<i32>().iter().flatten();
    Ok(texts.map(str::to_owned).collect())
}

pub(super) fn unexpected_type(source: arrow::error::ArrowError) -> Error {
    Error::with_source(
        ErrorCode::Internal,
        "the gateway returned a column of an unexpected type",
        source,
    )
}

fn expected_rows(table: &str, scale: f64) -> Result<u64> {
    tpch::expected_rows(table, scale).map_err(|error| Error::invalid(format!("{error:#}")))
}

/// Creates the progress bar of a table. The bar is drawn only on a terminal.
fn bar(table: &str, rows: u64) -> ProgressBar {
    let bar = ProgressBar::new(rows).with_prefix(table.to_owned());
    match ProgressStyle::with_template(BAR_TEMPLATE) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Builds the error of a failed write. Errors of the file system, such as a full disk, get another
/// code than bugs.
fn write_error(error: &anyhow::Error) -> Error {
    let text = format!("{error:#}");
    let io = error
        .chain()
        .find_map(|cause| cause.downcast_ref::<std::io::Error>());
    match io {
        Some(io) => Error::io(
            "cannot write TPC-H data",
            std::io::Error::new(io.kind(), text),
        ),
        None => Error::internal(format!("cannot write TPC-H data: {text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schema_has_every_table_and_the_bar_is_well_formed() {
        let (statements, _) = split(SCHEMA);
        for table in tpch::tables() {
            let start = format!("CREATE TABLE {table} ");
            assert_eq!(
                statements.iter().filter(|s| s.contains(&start)).count(),
                1,
                "{table}"
            );
        }
        ProgressStyle::with_template(BAR_TEMPLATE).unwrap();
    }

    #[test]
    fn a_scale_that_does_not_exist_is_refused() {
        assert_eq!(
            check_scale(-1.0).unwrap_err().code(),
            ErrorCode::InvalidArgument
        );
    }
}
