use std::io::IsTerminal;
use std::time::Duration;

use arrow::array::RecordBatch;
use arrow::error::ArrowError;
use arrow::json as arrow_json;
use serde_json::{Map, Value, json};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::args::StatusArgs;
use crate::client::Client;
use crate::login::Target;
use crate::signals::StopSignals;
use crate::table::TextTable;
use crate::terminal;

/// The queries of the status, each with the name of its part in the JSON object.
const QUERIES: [(&str, &str); 3] = [
    (
        "nodes",
        "SELECT id, role, address, state, version, zone, running_fragments, memory_reserved_bytes, segments, rows, bytes, \
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

/// Moves the cursor of a terminal to its first line, so that the new text overwrites the old.
const TO_TOP: &str = "\x1b[H";
/// Erases the rest of a line of a terminal.
const ERASE_LINE: &str = "\x1b[K";
/// Erases everything below the cursor of a terminal.
const ERASE_BELOW: &str = "\x1b[J";

/// Prints the status as three tables, or as one JSON object with the same columns. With a pause to
/// watch, does so again and again until a signal comes.
///
/// # Errors
/// Returns `UNAVAILABLE` if no gateway answers. Whoever watches is shown the error instead, and the
/// next try follows after the pause.
pub async fn run(args: StatusArgs) -> Result<()> {
    let target = args.connection.target()?;
    let Some(pause) = args.watch else {
        let shown = read(&mut Client::log_in(&target).await?, args.json).await?;
        return terminal::print_line(&shown);
    };
    let mut stop = StopSignals::listen()?;
    tokio::select! {
        watched = watch(&target, args.json, pause) => watched,
        () = stop.requested() => Ok(()),
    }
}

/// Shows the status again and again. Returns the error of writing to standard output.
async fn watch(target: &Target, is_json: bool, pause: Duration) -> Result<()> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut client = None;
    loop {
        let read = read_again(&mut client, target, is_json).await;
        let text = match read {
            Ok(text) => text,
            Err(error) if is_json => json!({ "error": error.text() }).to_string(),
            Err(error) => error.text(),
        };
        if is_terminal && !is_json {
            terminal::print(&on_screen(&text, terminal::height()))?;
        } else {
            terminal::print_line(&text)?;
        }
        tokio::time::sleep(pause).await;
    }
}

/// Reads the status with the client of the last time, which is connected again after an error: a
/// gateway that was restarted does not know its session any more.
async fn read_again(client: &mut Option<Client>, target: &Target, is_json: bool) -> Result<String> {
    let mut connected = match client.take() {
        Some(client) => client,
        None => Client::log_in(target).await?,
    };
    let text = read(&mut connected, is_json).await?;
    *client = Some(connected);
    Ok(text)
}

/// Returns the text that replaces everything on a terminal of this height. Clearing the screen
/// first would make it flicker, and more lines than the terminal has would make it scroll.
fn on_screen(text: &str, height: Option<usize>) -> String {
    let shown = height.map_or(usize::MAX, |height| height.saturating_sub(1));
    let lines: String = text
        .lines()
        .take(shown)
        .map(|line| format!("{line}{ERASE_LINE}\n"))
        .collect();
    format!("{TO_TOP}{lines}{ERASE_BELOW}")
}

/// Returns the status as text: three tables, or one JSON object.
async fn read(client: &mut Client, is_json: bool) -> Result<String> {
    let mut object = Map::new();
    let mut parts = Vec::new();
    for (name, question) in QUERIES {
        let rows = client.collect(question).await?;
        if is_json {
            object.insert(name.to_owned(), to_json(&rows).map_err(display_error)?);
        } else {
            parts.push(as_text(name, &rows)?);
        }
    }
    if is_json {
        return Ok(Value::Object(object).to_string());
    }
    Ok(parts.join("\n"))
}

fn as_text(name: &str, rows: &RecordBatch) -> Result<String> {
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
    Ok(format!("{name}\n{text}"))
}

fn to_json(rows: &RecordBatch) -> Result<Value, ArrowError> {
    let mut text = Vec::new();
    let mut writer = arrow_json::WriterBuilder::new()
        .with_explicit_nulls(true)
        .build::<_, arrow_json::writer::JsonArray>(&mut text);
    writer.write(rows)?;
    writer.finish()?;
    drop(writer);
    serde_json::from_slice(&text).map_err(|source| ArrowError::ExternalError(Box::new(source)))
}

fn display_error(source: ArrowError) -> Error {
    Error::with_source(ErrorCode::Internal, "the status cannot be shown", source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_is_overwritten_line_by_line() {
        assert_eq!(
            on_screen("nodes\n  none\n", None),
            "\x1b[Hnodes\x1b[K\n  none\x1b[K\n\x1b[J"
        );
        assert_eq!(
            on_screen("nodes\n  a\n  b\n", Some(3)),
            "\x1b[Hnodes\x1b[K\n  a\x1b[K\n\x1b[J"
        );
    }
}
