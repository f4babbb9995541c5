//! The file of a table defines its variants and what a variant does in one turn. Turns, results and
//! reports are the same for all tables.

/// Compares the 22 queries of TPC-H with Ballista.
mod ballista;
/// Measures how the number of rows in a message affects its cost.
mod chunks;
/// Measures many clients that ask small and large questions at the same time.
mod concurrency;
/// Runs the TPC-H queries in turns on the cluster and in another engine.
mod engines;
/// Reads the text of EXPLAIN.
mod explain;
/// Reads from thousands of workers in three ways.
mod fanout;
/// Compares the cost of a gateway's query over all workers with the cost of the transport alone.
mod floor;
/// Measures how much memory a gateway needs per group, when the rows of a group are spread over the
/// workers.
mod groups;
/// Compares loading with plain Parquet writing.
mod load;
/// Generates TPC-H data as Parquet files, and loads them into an embedded cluster.
mod loaded_cluster;
/// Compares the rows of many keys with PostgreSQL.
mod lookups;
/// Measures what many small inserts leave behind.
mod many_inserts;
/// Asks small and large questions at the same time, and measures how long the answers take.
mod mixed_load;
/// Measures what metrics and traces cost.
mod observed;
/// Compares a point query with a bare Flight call.
mod point;
/// Asks for rows by key over many connections, and measures what that costs both sides.
mod point_load;
/// Measures how the number of partitions of a gather affects its throughput.
mod readers;
/// Compares queries with and without writes at the same time.
mod reading_while_writing;
/// Measures what is saved by relays, the workers that merge the rows of other workers.
mod relays;
/// Runs a fleet with rows, for the tables that query a gateway.
mod running_fleet;
/// Measures how much of a large result a gateway holds while a client reads it slowly, by the
/// number of workers.
mod slow_client;
/// Starts stubs and readers for the tables that read from stubs.
mod stubs;
/// Compares writes that go on for minutes with the peak.
mod sustained_writes;
/// Compares the 22 queries of TPC-H with one DataFusion process.
mod tpch;
/// Measures how the number of workers affects a small insert.
mod wide_insert;
/// Compares durable writes of all sizes with PostgreSQL and with the raw costs.
mod writes;
/// Starts a cluster for the tables that write, and asks it for numbers.
mod written_cluster;

use anyhow::{Context, Result};
use futures::future::LocalBoxFuture;

use crate::bench::Bench;
use crate::machine::{Machine, versions};
use crate::results::{TableResults, Variant};

/// An experiment.
#[derive(Debug)]
pub struct BenchTable {
    /// The name of the table on the command line. The file of its results has the same name.
    pub name: &'static str,
    /// The title of the table.
    pub title: &'static str,
    /// What is measured, and how.
    pub method: &'static str,
    run: fn(&Bench) -> LocalBoxFuture<'_, Result<Vec<Variant>>>,
}

/// All tables.
pub const ALL: [BenchTable; 20] = [
    chunks::TABLE,
    readers::TABLE,
    fanout::TABLE,
    floor::TABLE,
    relays::TABLE,
    point::TABLE,
    lookups::TABLE,
    point_load::TABLE,
    groups::TABLE,
    slow_client::TABLE,
    concurrency::TABLE,
    observed::TABLE,
    writes::TABLE,
    reading_while_writing::TABLE,
    many_inserts::TABLE,
    sustained_writes::TABLE,
    wide_insert::TABLE,
    tpch::TABLE,
    ballista::TABLE,
    load::TABLE,
];

/// Returns the tables with these names, in the order of [`ALL`]. Returns all tables if there are no
/// names.
///
/// # Errors
/// Returns an error if a name is not the name of a table.
pub fn select_tables(names: &[String]) -> Result<Vec<BenchTable>> {
    for name in names {
        let is_known = ALL.iter().any(|table| table.name == name);
        is_known.then_some(()).with_context(|| {
            let all = ALL.map(|table| table.name).join(", ");
            format!("there is no table \"{name}\"; there are {all}")
        })?;
    }
    let mut tables = Vec::from(ALL);
    tables.retain(|table| names.is_empty() || names.iter().any(|name| name == table.name));
    Ok(tables)
}

impl BenchTable {
    /// Runs the experiment.
    ///
    /// # Errors
    /// Returns the errors of the variants.
    pub async fn run(&self, bench: &Bench) -> Result<TableResults> {
        let variants = (self.run)(bench).await?;
        Ok(TableResults {
            table: self.name,
            title: self.title,
            method: self.method,
            size: bench.size.name(),
            machine: Machine::this(),
            versions: versions(),
            date: chrono::Utc::now().to_rfc3339_opts(chrono::SecondsFormat::Secs, true),
            variants,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_chosen_by_name() {
        let chosen_names = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select_tables(&names)
                .map(|tables| tables.iter().map(|table| table.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen_names(&[]).unwrap().len(), ALL.len());
        let two = chosen_names(&["tpch", "chunks"]).unwrap();
        assert_eq!(two, ["chunks", "tpch"]);
        let error = chosen_names(&["chunk"]).unwrap_err().to_string();
        assert!(error.contains("\"chunk\"; there are chunks, "), "{error}");
    }
}
