use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use arrow::array::RecordBatch;
use arrow_flight::error::FlightError;
use arrow_flight::sql::client::FlightSqlServiceClient;
use arrow_flight::sql::{
    CommandStatementIngest, TableDefinitionOptions, TableExistsOption, TableNotExistOption,
};
use futures::future::{BoxFuture, LocalBoxFuture};
use futures::{FutureExt, stream};
use tokio::runtime::Handle;
use tokio::time::sleep;
use volary_cli::client::Client;
use volary_node::channel::{ChannelOptions, Transport, flight_client};

use super::rows::COLUMNS;
use super::{TABLE, Way, WriteRows};
use crate::local_process::LocalProcess;
use crate::metrics;

/// The metric with the number of syncs, of all nodes of a process.
const SYNCS: &str = "volary_disk_syncs_total";

/// The key of gRPC's metadata with a time to wait, in milliseconds.
const PUSHBACK: &str = "grpc-retry-pushback-ms";
/// A write that was refused again and again fails after this time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Writes each batch with a `CommandStatementIngest`, as ADBC's `adbc_ingest` and the Python
/// client's `ingest` do.
#[derive(Debug, Clone)]
pub struct Ingest(pub Rc<LocalProcess>);

impl Way for Ingest {
    fn name(&self) -> &'static str {
        "Volary"
    }

    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn WriteRows>>> {
        async {
            let writer = IngestingWriter {
                client: flight_sql_client(self.0.uri()).await?,
            };
            Ok(Box::new(writer) as Box<dyn WriteRows>)
        }
        .boxed_local()
    }

    fn empty_table(&self) -> LocalBoxFuture<'_, Result<()>> {
        async {
            let mut client = Client::connect(self.0.uri()).await?;
            let drop = format!("DROP TABLE IF EXISTS {TABLE}");
            client.collect(&drop).await?;
            let create = format!("CREATE TABLE {TABLE} ({COLUMNS}) WITH (shard_key = 'k')");
            client.collect(&create).await?;
            Ok(())
        }
        .boxed_local()
    }

    fn syncs(&self) -> LocalBoxFuture<'_, Result<Option<f64>>> {
        async {
            let Some(address) = self.0.metrics() else {
                return Ok(None);
            };
            Ok(metrics::sum(&metrics::scrape(address).await?, SYNCS))
        }
        .boxed_local()
    }
}

struct IngestingWriter {
    client: FlightSqlServiceClient<Transport>,
}

impl IngestingWriter {
    /// Writes the rows. If the cluster refuses them for now, waits as long as it says, and tries
    /// again. The waiting counts as part of the write.
    async fn ingest(&mut self, rows: RecordBatch) -> Result<()> {
        let count = rows.num_rows();
        let started = Instant::now();
        let written = loop {
            let batches = stream::iter([Ok(rows.clone())]);
            let answer = self.client.execute_ingest(append_command(), batches).await;
            let error = match answer {
                Ok(written) => break written,
                Err(error) => error,
            };
            match pushback(&error) {
                Some(after) if started.elapsed() < PATIENCE => sleep(after).await,
                _ => return Err(error.into()),
            }
        };
        ensure!(
            usize::try_from(written) == Ok(count),
            "{written} rows were written, not {count}"
        );
        Ok(())
    }
}

impl WriteRows for IngestingWriter {
    fn write(&mut self, rows: RecordBatch) -> BoxFuture<'_, Result<()>> {
        self.ingest(rows).boxed()
    }
}

/// Returns how long the server asks the client to wait before it tries again: the "Pushback" of
/// gRFC A6.
fn pushback(error: &FlightError) -> Option<Duration> {
    let FlightError::Tonic(status) = error else {
        return None;
    };
    let after = status.metadata().get(PUSHBACK)?.to_str().ok()?;
    after.parse().ok().map(Duration::from_millis)
}

/// Opens a session with the gateway at a URI or at `host:port`.
///
/// # Errors
/// Returns the errors of the login.
pub async fn flight_sql_client(gateway: &str) -> Result<FlightSqlServiceClient<Transport>> {
    let address = gateway.strip_prefix("grpc://").unwrap_or(gateway);
    let flight = flight_client(address, &ChannelOptions::default(), &Handle::current())?;
    let mut client = FlightSqlServiceClient::new_from_inner(flight);
    client.handshake("volary", "").await?;
    Ok(client)
}

/// Returns the command that appends rows to the existing table.
pub(super) fn append_command() -> CommandStatementIngest {
    CommandStatementIngest {
        table_definition_options: Some(TableDefinitionOptions {
            if_not_exist: TableNotExistOption::Fail.into(),
            if_exists: TableExistsOption::Append.into(),
        }),
        table: TABLE.to_owned(),
        ..CommandStatementIngest::default()
    }
}

#[cfg(test)]
mod tests {
    use tonic::metadata::MetadataValue;
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn only_a_refusal_with_a_time_is_tried_again() {
        let refused = |after: Option<&'static str>| {
            let mut status = Status::new(Code::ResourceExhausted, "too many segments");
            if let Some(after) = after {
                let value = MetadataValue::from_static(after);
                status.metadata_mut().insert(PUSHBACK, value);
            }
            pushback(&FlightError::Tonic(Box::new(status)))
        };
        assert_eq!(refused(Some("2400")), Some(Duration::from_millis(2_400)));
        // A negative time means: never again.
        assert_eq!(refused(Some("-1")), None);
        assert_eq!(refused(None), None);
    }
}
