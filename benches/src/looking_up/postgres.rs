use std::rc::Rc;

use anyhow::Result;
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio_postgres::{Client, Statement};

use super::rows::{COLUMNS, TABLE, values_of};
use super::{LookUp, Way};
use crate::postgres::PostgresServer;
use crate::procfs::ObservedProcess;

/// Asks PostgreSQL with `= ANY($1)`, which is prepared once for each connection.
#[derive(Debug, Clone)]
pub struct Any(Rc<PostgresServer>);

impl Any {
    /// Creates the table with `rows` rows and a primary key.
    ///
    /// # Errors
    /// Returns the errors of the database.
    pub async fn new(server: PostgresServer, rows: u64) -> Result<Self> {
        let client = server.connect().await?;
        let columns = format!("CREATE TABLE {TABLE} ({COLUMNS}, PRIMARY KEY (k))");
        client.batch_execute(&columns).await?;
        let insert = format!(
            "INSERT INTO {TABLE} SELECT {} FROM generate_series(0::BIGINT, {}) AS g(k)",
            values_of("k"),
            rows.saturating_sub(1)
        );
        client.batch_execute(&insert).await?;
        client
            .batch_execute(&format!("VACUUM ANALYZE {TABLE}"))
            .await?;
        client.batch_execute("CHECKPOINT").await?;
        Ok(Self(Rc::new(server)))
    }
}

impl Way for Any {
    fn name(&self) -> &'static str {
        "PostgreSQL, = ANY"
    }

    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn LookUp>>> {
        async {
            let client = self.0.connect().await?;
            let query = format!("SELECT k, a, b, s FROM {TABLE} WHERE k = ANY($1)");
            let statement = client.prepare(&query).await?;
            Ok(Box::new(AskingClient { client, statement }) as Box<dyn LookUp>)
        }
        .boxed_local()
    }

    /// Each connection has a process of its own.
    fn process(&self) -> Option<ObservedProcess> {
        None
    }
}

struct AskingClient {
    client: Client,
    statement: Statement,
}

impl LookUp for AskingClient {
    fn look_up(&mut self, keys: Vec<i64>) -> BoxFuture<'_, Result<usize>> {
        async move {
            let rows = self.client.query(&self.statement, &[&keys]).await?;
            Ok(rows.len())
        }
        .boxed()
    }
}
