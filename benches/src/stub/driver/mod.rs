//! A stub that stands in for a gateway. It passes on a call that it does not know to a gateway, and
//! remembers the answer. From then on it gives this answer at once, with the same bytes and
//! headers. So it works with every driver, whatever calls the driver makes, and its processor time
//! is what the calls themselves cost.
//!
//! Statements differ only by their keys, so all statements of a listener have the same answer. Each
//! driver and each question needs a listener of its own.

/// Remembers answers.
mod memory;
/// Starts the process that a stub runs in.
pub mod process;
/// Says which calls have the same answer.
mod question;
/// Implements the Flight service of a stub.
mod service;

use anyhow::Result;
use clap::Args;
use tokio::runtime::Handle;
use volary_node::channel::{ChannelOptions, flight_client};

use service::DriverService;

use super::Stubs;

/// The gateway that is asked first, and the number of listeners.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct DriverStubOptions {
    /// Address of the gateway (host:port).
    #[arg(long)]
    pub gateway: String,
    /// Number of listeners. Each remembers its own answers.
    #[arg(long, default_value_t = 1)]
    pub listeners: usize,
}

impl Stubs {
    /// Starts stubs that stand in for a gateway. Call it within a runtime, which then serves them.
    ///
    /// # Errors
    /// Returns an error if the gateway's address is not an address, or if no more files may be
    /// open.
    pub fn for_drivers(options: &DriverStubOptions) -> Result<Self> {
        Self::serve(options.listeners, || {
            let gateway = flight_client(
                &options.gateway,
                &ChannelOptions::default(),
                &Handle::current(),
            )?;
            Ok(DriverService::new(gateway))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow::array::{ArrayRef, AsArray, Int64Array, RecordBatch};
    use arrow::datatypes::Int64Type;
    use arrow_flight::FlightInfo;
    use arrow_flight::sql::client::FlightSqlServiceClient;
    use futures::TryStreamExt;
    use volary_cli::settings::Settings;
    use volary_cli::{LocalCluster, LocalOptions};
    use volary_node::Runtimes;
    use volary_node::channel::Transport;
    use volary_node::runtimes::OwnedRuntimes;

    use super::*;
    use crate::exchange::{ExchangeClient, KeyCheck};

    type Client = FlightSqlServiceClient<Transport>;

    const QUERY: &str = "SELECT CAST(? AS BIGINT) AS k";

    async fn connect(address: &str) -> Result<Client> {
        let flight = flight_client(address, &ChannelOptions::default(), &Handle::current())?;
        let mut client = FlightSqlServiceClient::new_from_inner(flight);
        client.handshake("volary", "").await?;
        Ok(client)
    }

    async fn first_number(client: &mut Client, info: FlightInfo) -> Result<i64> {
        let ticket = info.endpoint.into_iter().find_map(|end| end.ticket);
        let rows = client.do_get(ticket.unwrap_or_default()).await?;
        let batches: Vec<RecordBatch> = rows.try_collect().await?;
        Ok(batches[0].column(0).as_primitive::<Int64Type>().value(0))
    }

    /// Asks a prepared statement and a statement with a literal.
    async fn ask(client: &mut Client, key: i64) -> Result<[i64; 2]> {
        let mut statement = client.prepare(QUERY.to_owned(), None).await?;
        let keys: ArrayRef = Arc::new(Int64Array::from(vec![key]));
        statement.set_parameters(RecordBatch::try_from_iter([("$1", keys)])?)?;
        let info = statement.execute().await?;
        let prepared = first_number(client, info).await?;
        statement.close().await?;
        let text = QUERY.replace('?', &key.to_string());
        let info = client.execute(text, None).await?;
        Ok([prepared, first_number(client, info).await?])
    }

    async fn start_cluster(directory: &std::path::Path, runtimes: &Runtimes) -> LocalCluster {
        let mut settings = Settings::default();
        settings.local.workers = 1;
        settings.local.data_dir = directory.to_owned();
        settings.local.listen.set_port(0);
        let options = LocalOptions::new(settings, runtimes.clone());
        LocalCluster::start(options).await.unwrap()
    }

    #[test]
    fn what_a_gateway_has_answered_is_answered_again_without_it() {
        let runtimes = OwnedRuntimes::start(None).unwrap();
        let handles = runtimes.handles().clone();
        let directory = tempfile::tempdir().unwrap();
        handles.io().block_on(async {
            let cluster = start_cluster(directory.path(), &handles).await;
            let options = DriverStubOptions {
                gateway: cluster.uri().trim_start_matches("grpc://").to_owned(),
                listeners: 2,
            };
            let stubs = Stubs::for_drivers(&options).unwrap();
            let addresses: Vec<_> = stubs.addresses().iter().map(ToString::to_string).collect();
            let mut first = connect(&addresses[0]).await.unwrap();
            assert_eq!(ask(&mut first, 7).await.unwrap(), [7, 7]);
            let mut exchange = ExchangeClient::connect(&addresses[1], QUERY, KeyCheck::Equal)
                .await
                .unwrap();
            exchange.row_of(8).await.unwrap();
            cluster.shutdown().await;

            // Another key has the same answer, on the same and on another connection.
            assert_eq!(ask(&mut first, 70).await.unwrap(), [7, 7]);
            let mut second = connect(&addresses[0]).await.unwrap();
            assert_eq!(ask(&mut second, 700).await.unwrap(), [7, 7]);
            exchange.row_of(8).await.unwrap();
            let other = exchange.row_of(9).await.unwrap_err().to_string();
            assert!(other.contains("the row of key 9 has 8"), "{other}");

            // What was not asked before needs the gateway.
            let unknown = second.get_catalogs().await;
            assert!(unknown.is_err(), "{unknown:?}");
        });
    }
}
