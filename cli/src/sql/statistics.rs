use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::Int64Type;

use crate::client::Client;
use crate::terminal;

/// Returns the gateway's statistics of a query, as the end of a sentence. Returns an empty text if
/// the gateway does not know the query any more.
pub(super) async fn describe_query(client: &mut Client, query_id: &str) -> String {
    // The gateway generates the ids of queries, so `query_id` needs no escaping.
    let sql = format!(
        "SELECT workers, shards, scanned_rows, scanned_bytes, sent_bytes, queued_us, planning_us \
         FROM system.query_log WHERE query_id = '{query_id}' ORDER BY started DESC LIMIT 1"
    );
    match client.collect(&sql).await {
        Ok(batch) if batch.num_rows() == 1 => sentence(&batch).unwrap_or_default(),
        // Missing statistics are not worth an error.
        _ => String::new(),
    }
}

fn sentence(batch: &RecordBatch) -> Option<String> {
    let mut numbers = Vec::new();
    for column in batch.columns() {
        let number = column.as_primitive_opt::<Int64Type>()?.iter().next()??;
        numbers.push(u64::try_from(number).ok()?);
    }
    let [workers, shards, rows, bytes, sent, queued_us, planning_us] = numbers[..] else {
        return None;
    };
    if workers == 0 {
        return Some(String::new());
    }
    let mut text = format!(
        "; {}, {}, {} of {} read, {} sent, planned in {:.1} ms",
        terminal::plural(workers, "worker"),
        terminal::plural(shards, "shard"),
        terminal::plural(rows, "row"),
        terminal::bytes(bytes),
        terminal::bytes(sent),
        milliseconds(planning_us),
    );
    if queued_us > 1_000 {
        text.push_str(&format!(", queued for {:.1} ms", milliseconds(queued_us)));
    }
    Some(text)
}

fn milliseconds(microseconds: u64) -> f64 {
    u32::try_from(microseconds).map_or(f64::INFINITY, f64::from) / 1_000.0
}
