use std::collections::BTreeMap;
use std::pin::pin;
use std::rc::Rc;

use anyhow::{Result, ensure};
use arrow::array::{AsArray, RecordBatch};
use arrow::datatypes::{Float64Type, Int64Type};
use futures::FutureExt;
use futures::future::{BoxFuture, LocalBoxFuture};
use tokio_postgres::binary_copy::BinaryCopyInWriter;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Statement};

use super::rows::COLUMNS;
use super::{TABLE, Way, WriteRows};
use crate::postgres::PostgresServer;

/// The types of the columns.
const TYPES: [Type; 4] = [Type::INT8, Type::INT8, Type::FLOAT8, Type::VARCHAR];
/// Most rows of one INSERT. The protocol counts parameters in 16 bits.
const MOST_ROWS: usize = u16::MAX as usize / TYPES.len();

/// The statement that writes a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PostgresStatement {
    /// A prepared `INSERT … VALUES` of all rows. If there are more rows than a statement can have
    /// parameters for, several of them are one transaction.
    Insert,
    /// A `COPY … FROM STDIN` in PostgreSQL's binary format.
    Copy,
}

/// Writes to PostgreSQL.
#[derive(Debug, Clone)]
pub struct PostgresWay {
    /// The database.
    pub server: Rc<PostgresServer>,
    /// The statement that writes a batch.
    pub statement: PostgresStatement,
}

impl Way for PostgresWay {
    fn name(&self) -> &'static str {
        match self.statement {
            PostgresStatement::Insert => "PostgreSQL, INSERT",
            PostgresStatement::Copy => "PostgreSQL, COPY",
        }
    }

    fn connect(&self) -> LocalBoxFuture<'_, Result<Box<dyn WriteRows>>> {
        async {
            let client = self.server.connect().await?;
            let writer: Box<dyn WriteRows> = match self.statement {
                PostgresStatement::Insert => Box::new(InsertingWriter {
                    client,
                    statements: BTreeMap::new(),
                }),
                PostgresStatement::Copy => {
                    let copy = format!("COPY {TABLE} FROM STDIN (FORMAT binary)");
                    let statement = client.prepare(&copy).await?;
                    Box::new(CopyingWriter { client, statement })
                }
            };
            Ok(writer)
        }
        .boxed_local()
    }

    fn empty_table(&self) -> LocalBoxFuture<'_, Result<()>> {
        async {
            let client = self.server.connect().await?;
            let create = format!("CREATE TABLE IF NOT EXISTS {TABLE} ({COLUMNS})");
            client.batch_execute(&create).await?;
            client.batch_execute(&format!("TRUNCATE {TABLE}")).await?;
            Ok(())
        }
        .boxed_local()
    }

    /// PostgreSQL's counts of syncs are up to ten seconds late.
    fn syncs(&self) -> LocalBoxFuture<'_, Result<Option<f64>>> {
        async { Ok(None) }.boxed_local()
    }
}

/// The values of a batch, as PostgreSQL's client takes them.
struct Values<'a> {
    k: &'a [i64],
    a: &'a [i64],
    b: &'a [f64],
    s: Vec<&'a str>,
}

impl<'a> Values<'a> {
    fn of(rows: &'a RecordBatch) -> Self {
        let texts = rows.column(3).as_string::<i32>();
        Self {
            k: rows.column(0).as_primitive::<Int64Type>().values(),
            a: rows.column(1).as_primitive::<Int64Type>().values(),
            b: rows.column(2).as_primitive::<Float64Type>().values(),
            s: texts.iter().flatten().collect(),
        }
    }

    fn row(&self, index: usize) -> [&(dyn ToSql + Sync); 4] {
        [
            &self.k[index],
            &self.a[index],
            &self.b[index],
            &self.s[index],
        ]
    }
}

struct InsertingWriter {
    client: Client,
    /// The prepared statements by their number of rows.
    statements: BTreeMap<usize, Statement>,
}

impl InsertingWriter {
    async fn statement(&mut self, rows: usize) -> Result<Statement> {
        if let Some(statement) = self.statements.get(&rows) {
            return Ok(statement.clone());
        }
        let statement = self.client.prepare(&insert_of(rows)).await?;
        self.statements.insert(rows, statement.clone());
        Ok(statement)
    }

    async fn insert(&mut self, rows: RecordBatch) -> Result<()> {
        let count = rows.num_rows();
        let statements = count.div_ceil(MOST_ROWS);
        let chunk_rows = count.div_ceil(statements.max(1)).max(1);
        let mut chunks = Vec::with_capacity(statements);
        for first in (0..count).step_by(chunk_rows) {
            let end = count.min(first + chunk_rows);
            chunks.push((first..end, self.statement(end - first).await?));
        }
        let values = Values::of(&rows);
        let mut inserted = 0;
        if let [(range, statement)] = &chunks[..] {
            // A single statement is a transaction by itself.
            let parameters: Vec<_> = range.clone().flat_map(|row| values.row(row)).collect();
            inserted += self.client.execute(statement, &parameters).await?;
        } else {
            let transaction = self.client.transaction().await?;
            for (range, statement) in &chunks {
                let parameters: Vec<_> = range.clone().flat_map(|row| values.row(row)).collect();
                inserted += transaction.execute(statement, &parameters).await?;
            }
            transaction.commit().await?;
        }
        ensure!(inserted == count as u64, "{inserted} rows, not {count}");
        Ok(())
    }
}

impl WriteRows for InsertingWriter {
    fn write(&mut self, rows: RecordBatch) -> BoxFuture<'_, Result<()>> {
        self.insert(rows).boxed()
    }
}

/// Returns an INSERT of this number of rows.
fn insert_of(rows: usize) -> String {
    let columns = TYPES.len();
    let rows = (0..rows).map(|row| {
        let parameters = (1..=columns).map(|column| format!("${}", row * columns + column));
        format!("({})", parameters.collect::<Vec<_>>().join(", "))
    });
    let rows: Vec<_> = rows.collect();
    format!("INSERT INTO {TABLE} VALUES {}", rows.join(", "))
}

struct CopyingWriter {
    client: Client,
    statement: Statement,
}

impl CopyingWriter {
    async fn copy(&mut self, rows: RecordBatch) -> Result<()> {
        let sink = self.client.copy_in(&self.statement).await?;
        let mut writer = pin!(BinaryCopyInWriter::new(sink, &TYPES));
        let values = Values::of(&rows);
        for row in 0..rows.num_rows() {
            writer.as_mut().write(&values.row(row)).await?;
        }
        let copied = writer.finish().await?;
        let count = rows.num_rows();
        ensure!(copied == count as u64, "{copied} rows, not {count}");
        Ok(())
    }
}

impl WriteRows for CopyingWriter {
    fn write(&mut self, rows: RecordBatch) -> BoxFuture<'_, Result<()>> {
        self.copy(rows).boxed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::postgres::Programs;
    use crate::writing::rows::RowSource;

    #[test]
    fn an_insert_has_a_parameter_for_each_value() {
        let insert = insert_of(2);
        let rows = "($1, $2, $3, $4), ($5, $6, $7, $8)";
        assert_eq!(insert, format!("INSERT INTO w VALUES {rows}"));
        assert_eq!(MOST_ROWS, 16_383);
    }

    #[tokio::test]
    async fn both_statements_write_all_rows_of_batches_of_any_size() {
        let Some(programs) = Programs::find() else {
            eprintln!("PostgreSQL is not installed");
            return;
        };
        let near = tempfile::tempdir().unwrap();
        let server = PostgresServer::start(&programs, near.path()).await.unwrap();
        let server = Rc::new(server);
        for statement in [PostgresStatement::Insert, PostgresStatement::Copy] {
            let server = Rc::clone(&server);
            let way = PostgresWay { server, statement };
            way.empty_table().await.unwrap();
            let mut writer = way.connect().await.unwrap();
            for rows in [1, 3, MOST_ROWS + 2] {
                let mut rows = RowSource::new(rows, rows);
                writer.write(rows.next_batch().unwrap()).await.unwrap();
            }
            let client = way.server.connect().await.unwrap();
            let counted = client.query_one("SELECT count(*), count(DISTINCT k) FROM w", &[]);
            let counted = counted.await.unwrap();
            let expected = (1 + 3 + MOST_ROWS + 2) as i64;
            let counts: [i64; 2] = [counted.get(0), counted.get(1)];
            assert_eq!(counts, [expected, expected]);
        }
    }
}
