use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Schema};
use futures::stream::{self, StreamExt};
use tokio::sync::Mutex;
use volary_catalog::{IfExists, RelationName, Table};
use volary_exec::batches::used_bytes;
use volary_exec::uuids::{UUID, UUID_EXTENSION};
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};
use volary_node::runtimes::{SHORT_WORK_BYTES, continue_on_cpu};

use super::context::StatementContext;
use super::definition::{TableOptions, placeable_workers, stored_schema, table_definition};
use super::incoming_rows::IncomingRows;
use super::outcome::Start;
use super::{Completion, Engine, Session, batch_id, temporary};
use crate::load::defaults::Defaults;
use crate::load::source::RowStream;
use crate::load::{self, RowSource, fit};
use crate::sql::names::WrittenName;

/// The destination of a client's rows.
#[derive(Debug, Clone)]
pub struct IngestTarget {
    /// The name of the table. Upper and lower case are significant.
    pub table: WrittenName,
    /// Says whether the table is created if it does not exist.
    pub creates_table: bool,
    /// What to do with the rows if the table exists.
    pub if_exists: IfTableExists,
    /// Says whether the table is a temporary one of the session.
    pub is_temporary: bool,
    /// The options of a table that is created: those of CREATE TABLE … WITH.
    pub options: HashMap<String, String>,
}

/// What to do with incoming rows if their table exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IfTableExists {
    /// Refuses the rows with an error.
    Fail,
    /// Adds the rows to those of the table.
    Append,
    /// Replaces the table by a table of the new rows.
    Replace,
}

impl Engine {
    /// Writes rows into a table, all of them or none. Columns are matched by their names. Values
    /// are stored unchanged, except that values within nested values are cast as in a query.
    /// Returns the number of rows. `query_id`: see [`Self::execute`].
    ///
    /// # Errors
    /// `NOT_FOUND` if the table does not exist and may not be created. `ALREADY_EXISTS` if it
    /// exists and `ingest` refuses that. Also returns the errors of the rows.
    pub async fn ingest(
        self: &Arc<Self>,
        session: &Session,
        ingest: IngestTarget,
        rows: IncomingRows,
        query_id: QueryId,
    ) -> Result<u64> {
        let (engine, own) = (Arc::clone(self), session.clone());
        let work = run(engine, own, ingest, rows, query_id);
        let done = self.run_statement(session, query_id, Start::Here, work);
        let done = done.await?;
        Ok(done.rows.unwrap_or_default())
    }
}

async fn run(
    engine: Arc<Engine>,
    session: Session,
    ingest: IngestTarget,
    rows: IncomingRows,
    query_id: QueryId,
) -> Result<Completion> {
    let context = StatementContext::new(&engine, &session, query_id, None, false)?;
    context.check_may_write()?;
    let _place = context.wait_for_place(&engine).await?;
    let name = if ingest.is_temporary {
        temporary::name_of_new(&engine, &context, &ingest.table, true)?
    } else if ingest.if_exists == IfTableExists::Append {
        context.user_relation(&ingest.table)?
    } else {
        // The statement means a table of this kind, whatever temporary table has its name.
        temporary::name_of_new(&engine, &context, &ingest.table, false)?
    };
    let table = context.catalog.table(&name).cloned();
    let written = match (table, ingest.if_exists) {
        (Some(table), IfTableExists::Append) => {
            append(&engine, &session, &context, &table, rows).await?
        }
        (Some(_), IfTableExists::Fail) => {
            return Err(Error::new(
                ErrorCode::AlreadyExists,
                format!(
                    "table \"{name}\" exists already; append to it, replace it, or choose another name"
                ),
            )
            .with_sqlstate(SqlState::DuplicateTable));
        }
        (None, _) if !ingest.creates_table => {
            return Err(context.catalog.no_such_table(&name, &context.rights));
        }
        (None, _) | (Some(_), IfTableExists::Replace) => {
            batch_id::refuse(&session)?;
            create(&engine, &session, &context, &name, &ingest, rows).await?
        }
    };
    Ok(Completion::with_writes(Some(written)))
}

async fn append(
    engine: &Engine,
    session: &Session,
    context: &StatementContext,
    table: &Arc<Table>,
    rows: IncomingRows,
) -> Result<u64> {
    context.check_may_insert(table)?;
    let (batch, rows) = batch_id::of_rows(session, batch_id::INGEST, rows)?;
    let source = fitted_source(context, table, rows)?;
    engine.append(context, table, batch).run(source).await
}

async fn create(
    engine: &Engine,
    session: &Session,
    context: &StatementContext,
    name: &RelationName,
    ingest: &IngestTarget,
    rows: IncomingRows,
) -> Result<u64> {
    let mut options = TableOptions::default();
    for (option, value) in &ingest.options {
        options
            .set(option, value.clone(), value)
            .map_err(|error| error.at(format!("table {name}")))?;
    }
    let schema = without_other_uuids(&rows.schema);
    let schema = stored_schema(context.shape, &name.to_string(), &schema)?;
    let definition = table_definition(name, schema, &options)?;
    let live = placeable_workers(engine)?;
    let if_exists = match ingest.if_exists {
        IfTableExists::Replace => IfExists::Replace,
        IfTableExists::Fail | IfTableExists::Append => IfExists::Fail,
    };
    let begun = engine
        .catalog
        .begin_create(definition, &live, if_exists, &context.rights)
        .await;
    match begun {
        Ok((table, write)) => {
            let source = fitted_source(context, &table, rows)?;
            load::write_rows(
                engine.gateway_parts(context.owner()),
                context.query_id,
                &table,
                write,
                source,
            )
            .await
        }
        Err(error) => {
            // Another client may have created the table in the meantime.
            let existing = engine.catalog.state().table(name).cloned();
            match existing {
                Some(table) if ingest.if_exists == IfTableExists::Append => {
                    append(engine, session, context, &table, rows).await
                }
                _ => Err(error),
            }
        }
    }
}

/// Returns the columns with a binary type for those of 16 bytes that the client does not declare to
/// be UUIDs. They may be hashes, for example.
fn without_other_uuids(schema: &Schema) -> Schema {
    let fields = schema.fields().iter().map(|field| {
        let field = field.as_ref().clone();
        if *field.data_type() == UUID && field.extension_type_name() != Some(UUID_EXTENSION) {
            field.with_data_type(DataType::BinaryView)
        } else {
            field
        }
    });
    Schema::new(fields.collect::<Vec<_>>())
}

/// Splits the rows into the session's number of target partitions and fits them to the table.
/// Several readers share the client's stream, because fitting and splitting rows takes longer than
/// receiving them.
fn fitted_source(
    context: &StatementContext,
    table: &Arc<Table>,
    rows: IncomingRows,
) -> Result<RowSource> {
    let fields = rows.schema.fields();
    let names: Vec<_> = fields.iter().map(|field| field.name().clone()).collect();
    let columns = fit::ColumnMapping::from_names(
        &table.name().to_string(),
        table.schema(),
        &names,
        &[],
        context.time_zone(),
        Defaults::new(&context.state, table)?,
    )?;
    let readers = context.state.config().target_partitions();
    let shared = Arc::new(Mutex::new(rows.batches.fuse()));
    let partition = |()| -> RowStream {
        let (table, columns) = (Arc::clone(table), columns.clone());
        let shared = Arc::clone(&shared);
        let rows = stream::unfold(shared, |shared| async move {
            let next = shared.lock().await.next().await;
            next.map(|batch| (batch, shared))
        });
        let fitted = rows.then(move |batch| {
            let (table, columns) = (Arc::clone(&table), columns.clone());
            async move {
                let batch = batch?;
                if used_bytes(&batch) > SHORT_WORK_BYTES {
                    continue_on_cpu().await;
                }
                let fitted = columns.fit(table.schema(), &batch);
                fitted.map_err(|misfit| misfit.in_table(&table.name().to_string()))
            }
        });
        fitted.boxed()
    };
    Ok(RowSource::new(
        std::iter::repeat_n((), readers).map(partition).collect(),
    ))
}
