use async_trait::async_trait;
use futures::TryStreamExt;
use sqllogictest::{AsyncDB, DBOutput, DefaultColumnType};
use volary_cli::client::Client;
use volary_flight_proto::{Error, ErrorCode, Result};
use volary_tests::cluster::STATEMENT_TIMEOUT;

use super::text::{column_type, rows};

/// First words of statements that return rows. Any other statement returns the number of rows that
/// it has written.
const QUERIES: [&str; 9] = [
    "SELECT", "FROM", "WITH", "VALUES", "CALL", "SHOW", "DESCRIBE", "EXPLAIN", "TABLE",
];

/// A session of a file. A file that names connections has several.
pub(super) struct Session {
    client: Client,
    /// Says whether each statement is described before it runs, as drivers do.
    describes: bool,
}

impl Session {
    /// Opens a session with the gateway at `uri`.
    pub(super) async fn open(uri: &str, describes: bool) -> Result<Self> {
        let client = Client::connect(uri).await?;
        Ok(Self { client, describes })
    }

    async fn answer(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>> {
        let described = match self.describes {
            true => Some(self.client.describe(sql).await),
            false => None,
        };
        let answer = self.client.run(sql).await?;
        match described {
            Some(Err(error)) => return Err(error.at("a statement that runs cannot be described")),
            Some(Ok(described)) if described != answer.schema => {
                return Err(Error::internal(format!(
                    "the statement was described with {described}, and has {}",
                    answer.schema
                )));
            }
            _ => {}
        }
        if !is_query(sql) {
            return Ok(DBOutput::StatementComplete(answer.rows_written().await?));
        }
        let fields = answer.schema.fields().iter();
        let types = fields.map(|field| column_type(field.data_type())).collect();
        let batches: Vec<_> = answer.batches.try_collect().await?;
        let rows = rows(&batches).map_err(|error| Error::internal(error.to_string()))?;
        Ok(DBOutput::Rows { types, rows })
    }
}

#[async_trait]
impl AsyncDB for Session {
    type Error = Error;
    type ColumnType = DefaultColumnType;

    async fn run(&mut self, sql: &str) -> Result<DBOutput<DefaultColumnType>> {
        match tokio::time::timeout(STATEMENT_TIMEOUT, self.answer(sql)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!("no answer within {STATEMENT_TIMEOUT:?}"),
            )),
        }
    }

    async fn shutdown(&mut self) {}

    /// Returns the label of this client. `skipif volary` skips a record on all clusters.
    fn engine_name(&self) -> &str {
        "volary"
    }
}

fn is_query(sql: &str) -> bool {
    let sql =
        sql.trim_start_matches(|character: char| character == '(' || character.is_whitespace());
    let first = sql
        .split(|character: char| !character.is_alphanumeric())
        .next();
    first.is_some_and(|first| {
        QUERIES
            .iter()
            .any(|query| first.eq_ignore_ascii_case(query))
    })
}
