use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::json;
use serde_json::{Map, Value};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::args::StatusArgs;
use crate::client::Client;
use crate::table::TextTable;
use crate::terminal;

/// The queries of the status, each with the name of its part in the JSON object.
const QUERIES: [(&str, &str); 3] = [
    (
        "nodes",
        "SELECT id, role, address, state, version, running_fragments, memory_reserved_bytes, segments, rows, bytes, \
         last_heartbeat_ms FROM system.nodes ORDER BY role, id",
    ),
    (
        "tables",
        "SELECT name, kind, shard_key, shards, sort_key, workers, rows, bytes, owner, schema_name \
         FROM system.tables ORDER BY schema_name, name",
    ),
    (
        "shards",
        "SELECT table_name, worker_id, count(*) AS shards, sum(rows) AS rows, sum(bytes) AS bytes, schema_name \
         FROM system.shards GROUP BY schema_name, table_name, worker_id \
         ORDER BY schema_name, table_name, worker_id",
    ),
];

const INDENT: &str = "  ";

/// The name of a column, its heading, and the function that formats its numbers.
type ColumnFormat = (&'static str, &'static str, fn(u64) -> String);

/// The columns whose raw numbers are hard to read.
const COLUMN_FORMATS: [ColumnFormat; 4] = [
    ("memory_reserved_bytes", "memory", terminal::bytes),
    ("bytes", "size", terminal::bytes),
    ("rows", "rows", terminal::count),
    ("last_heartbeat_ms", "heartbeat", |ms| format!("{ms} ms")),
];

/// Prints the status as three tables, or as one JSON object with the same columns.
///
/// # Errors
/// Returns `UNAVAILABLE` if no gateway answers.
pub async fn run(args: StatusArgs) -> Result<()> {
    let mut client = Client::log_in(&args.connection.target()?).await?;
    let mut object = Map::new();
    for (name, question) in QUERIES {
        let rows = client.collect(question).await?;
        if args.json {
            object.insert(name.to_owned(), to_json(&rows).map_err(display_error)?);
        } else {
            print(name, &rows)?;
        }
    }
    if args.json {
        terminal::print_line(&Value::Object(object).to_string())?;
    }
    Ok(())
}

fn print(name: &str, rows: &RecordBatch) -> Result<()> {
    let mut table = TextTable::new(&rows.schema());
    table.push(rows).map_err(display_error)?;
    for (column, heading, form) in COLUMN_FORMATS {
        table.map_column(column, |cell| cell.parse().ok().map(form));
        table.rename_column(column, heading);
    }
    let lines = if table.is_empty() {
        vec!["none".to_owned()]
    } else {
        table.render(terminal::width().map(|width| width.saturating_sub(INDENT.len())))
    };
    let text: String = lines
        .iter()
        .map(|line| format!("{INDENT}{line}\n"))
        .collect();
    terminal::print_line(&format!("{name}\n{text}"))
}

fn to_json(rows: &RecordBatch) -> Result<Value, ArrowError> {
    let mut text = Vec::new();
    let mut writer = json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, json::writer::JsonArray>(&mut text);
    writer.write(rows)?;
    writer.finish()?;
    drop(writer);
    serde_json::from_slice(&text).map_err(|source| ArrowError::ExternalError(Box::new(source)))
}

fn display_error(source: ArrowError) -> Error {
    Error::with_source(ErrorCode::Internal, "the status cannot be shown", source)
}
