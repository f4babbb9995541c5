//! The experiments. Each is a table of variants that are measured side by side.
//!
//! The file of a table defines its variants and what a variant does in one turn. Turns, results and
//! reports are the same for all tables.

mod ballista;
mod chunks;
mod concurrency;
mod engines;
mod explain;
mod fanout;
mod floor;
mod groups;
mod load;
mod loaded_cluster;
mod point;
mod readers;
mod relays;
mod running_fleet;
mod slow_client;
mod stubs;
mod tpch;

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
pub const ALL: [BenchTable; 12] = [
    chunks::TABLE,
    readers::TABLE,
    fanout::TABLE,
    floor::TABLE,
    relays::TABLE,
    point::TABLE,
    groups::TABLE,
    slow_client::TABLE,
    concurrency::TABLE,
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
