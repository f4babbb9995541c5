use std::time::Instant;

use arrow::array::{AsArray, RecordBatch};
use arrow::compute::cast;
use arrow::datatypes::DataType;
use volary_flight_proto::Result;

use crate::client::Client;
use crate::table::TextTable;
use crate::terminal;

/// Number of result rows that are shown.
const SHOWN_ROWS: usize = 5;

struct DemoQuery {
    title: &'static str,
    explanation: &'static str,
    sql: &'static str,
}

/// Includes the text of a TPC-H query. The tests run the same file.
macro_rules! tpch {
    ($file:literal) => {
        include_str!(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../tests/queries/tpch/",
            $file
        ))
    };
}

const QUERIES: [DemoQuery; 6] = [
    DemoQuery {
        title: "Key lookup",
        explanation: "orders is sharded by o_orderkey, so only the one shard that can hold the key is read",
        sql: "SELECT o_orderkey, o_orderdate, o_orderpriority, o_totalprice FROM orders WHERE o_orderkey = 7",
    },
    DemoQuery {
        title: "GROUP BY",
        explanation: "each worker aggregates its shards; the gateway merges the five groups of each worker",
        sql: "SELECT o_orderpriority, count(*) AS orders, sum(o_totalprice) AS total FROM orders \
              GROUP BY o_orderpriority ORDER BY o_orderpriority",
    },
    DemoQuery {
        title: "Co-located join",
        explanation: "orders and lineitem are sharded by the order key, so the workers join them shard by shard",
        sql: "SELECT o_orderpriority, count(*) AS late_items FROM orders JOIN lineitem ON l_orderkey = o_orderkey \
              WHERE l_receiptdate > l_commitdate GROUP BY o_orderpriority ORDER BY late_items DESC",
    },
    DemoQuery {
        title: "TPC-H Q1",
        explanation: "one pass over lineitem, aggregated on the workers",
        sql: tpch!("q01.sql"),
    },
    DemoQuery {
        title: "TPC-H Q3",
        explanation: "the workers join lineitem and orders; the gateway joins the customers",
        sql: tpch!("q03.sql"),
    },
    DemoQuery {
        title: "TPC-H Q18",
        explanation: "large orders are grouped by the shard key, so the workers compute and filter the groups",
        sql: tpch!("q18.sql"),
    },
];

/// Runs the queries. For each query, prints its title, its time, and the workers and shards that it
/// asked.
pub(super) async fn run(client: &mut Client) -> Result<()> {
    for query in QUERIES {
        let plan = client.collect(&format!("EXPLAIN {}", query.sql)).await?;
        let asked = describe_asked(&plan_text(&plan));
        let start = Instant::now();
        let rows = client.collect(query.sql).await?;
        let time = terminal::duration(start.elapsed());
        let returned = terminal::plural(rows.num_rows() as u64, "row");
        let asked = asked.map_or_else(String::new, |asked| format!(", {asked}"));
        terminal::print_line(&format!(
            "\n{}: {}\n  {returned} in {time}{asked}\n{}",
            query.title,
            query.explanation,
            table(&rows)?
        ))?;
    }
    Ok(())
}

fn table(rows: &RecordBatch) -> Result<String> {
    let shown = rows.slice(0, rows.num_rows().min(SHOWN_ROWS));
    let mut table = TextTable::new(&rows.schema());
    table.push(&shown).map_err(super::data::unexpected_type)?;
    let width = terminal::width().map(|width| width.saturating_sub(4));
    let mut lines = table.render(width);
    if rows.num_rows() > SHOWN_ROWS {
        lines.push("…".to_owned());
    }
    Ok(lines
        .iter()
        .map(|line| format!("    {line}"))
        .collect::<Vec<_>>()
        .join("\n"))
}

fn plan_text(plan: &RecordBatch) -> String {
    let texts = plan
        .columns()
        .iter()
        .filter_map(|column| cast(column, &DataType::Utf8).ok());
    texts
        .flat_map(|column| {
            let lines = column.as_string::<i32>().iter().flatten();
            lines.map(str::to_owned).collect::<Vec<_>>()
        })
        .collect::<Vec<_>>()
        .join("\n")
}

/// Returns a text that says how many workers and shards the scans of a plan ask. The numbers come
/// from texts such as `shards=3/64 workers=2/4` in the plan. The number of shards is the sum over
/// all scans. The number of workers is that of the scan that asks the most workers.
fn describe_asked(plan: &str) -> Option<String> {
    let shards = fractions(plan, "shards=");
    let workers = fractions(plan, "workers=");
    let sum = shards
        .iter()
        .fold((0, 0), |sum, (part, all)| (sum.0 + part, sum.1 + all));
    let (part, all) = workers.iter().copied().max()?;
    Some(format!(
        "asked {part} of {} and {} of {}",
        terminal::plural(all, "worker"),
        terminal::count(sum.0),
        terminal::plural(sum.1, "shard"),
    ))
}

fn fractions(plan: &str, key: &str) -> Vec<(u64, u64)> {
    plan.split(key)
        .skip(1)
        .filter_map(|rest| {
            let end = rest.find(|c: char| !c.is_ascii_digit() && c != '/');
            let (part, all) = rest[..end.unwrap_or(rest.len())].split_once('/')?;
            Some((part.parse().ok()?, all.parse().ok()?))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_plan_asks_is_read_from_its_text() {
        let plan =
            "Gather fragment=1 shards=3/64 workers=2/4\n  Gather shards=16/16, workers=4/4: all";
        let text = describe_asked(plan);
        assert_eq!(
            text.as_deref(),
            Some("asked 4 of 4 workers and 19 of 80 shards")
        );
        assert_eq!(describe_asked("ValuesExec"), None);
    }
}
