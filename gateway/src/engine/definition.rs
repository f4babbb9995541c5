use std::collections::BTreeSet;
use std::sync::Arc;

use arrow::datatypes::{DataType, Field, FieldRef, Schema, SchemaRef};
use datafusion::logical_expr::CreateView;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::sqlparser::ast::{
    CommentDef, CreateTable, CreateTableOptions, OnCommit, SqlOption, Statement as Ast,
};
use volary_catalog::{
    Declarations, DefinitionKind, IfExists, NewView, RelationName, TableDefinition, ViewKind,
};
use volary_exec::instants::UTC;
use volary_exec::intervals::INTERVAL;
use volary_exec::shard_key::check_key_type;
use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, Result, SqlState};

use super::context::StatementContext;
use super::declarations::declare::WrittenDeclarations;
use super::declarations::retention::retention;
use super::delete_files::delete_files;
use super::errors::with_advice;
use super::result_columns::{check_distinct_names, coerced_schema};
use super::{Completion, Engine, temporary};
use crate::load;
use crate::sql::drop_statement::{DropStatement, DroppedKind};
use crate::sql::names::{WrittenName, identifier};
use crate::sql::options::{literal_text, named_column};
use crate::sql::shape::ShapeLimits;
use crate::sql::truncate::TruncateStatement;
use crate::sql_type::decimal_type;

/// Number of shards of a table whose definition does not set it. It should be much larger than the
/// number of workers, and small enough that the files of each shard are not tiny.
const DEFAULT_SHARDS: u32 = 64;

/// The options of CREATE TABLE … WITH (…).
#[derive(Debug, Default)]
pub(super) struct TableOptions {
    shard_key: Option<String>,
    shards: Option<u32>,
    sort_key: Vec<String>,
    is_reference: bool,
    comment: Option<String>,
    retention: Option<String>,
    time_column: Option<String>,
}

/// Creates a table. The completion has the number of rows that CREATE TABLE AS has written.
pub(super) async fn create_table(
    engine: &Engine,
    context: &StatementContext,
    mut create: CreateTable,
) -> Result<Completion> {
    refuse_unsupported_forms(&create)?;
    let written_name = WrittenName::of_object(&create.name)?;
    let is_temporary = std::mem::take(&mut create.temporary);
    // LOCAL says nothing more: it was checked that the table is not GLOBAL.
    create.global = None;
    let table_name = temporary::name_of_new(engine, context, &written_name, is_temporary)?;
    let on_commit = create.on_commit.take();
    check_on_commit(&table_name, on_commit.as_ref())?;
    let name = table_name.to_string();
    let options = TableOptions::parse(&std::mem::take(&mut create.table_options))
        .map_err(|error| error.at(format!("table {name}")))?;
    let if_exists = match (create.or_replace, create.if_not_exists) {
        (false, false) => IfExists::Fail,
        (false, true) => IfExists::Keep,
        (true, false) => IfExists::Replace,
        (true, true) => {
            return Err(Error::invalid(
                "CREATE TABLE takes either OR REPLACE or IF NOT EXISTS; leave one out",
            ));
        }
    };
    let catalog = &context.catalog;
    catalog.check_create(&table_name, &context.rights)?;
    if if_exists == IfExists::Keep && catalog.table(&table_name).is_some() {
        return Ok(Completion::WITHOUT_WRITES);
    }
    let Some(query) = create.query.take() else {
        context.shape.check_columns(&name, create.columns.len())?;
        let written = WrittenDeclarations::take_from(&mut create)?;
        let schema = declared_schema(context, create).await?;
        let declarations = written
            .resolve(context, &table_name, &schema)
            .map_err(|error| error.at(format!("table {name}")))?;
        let mut definition = table_definition(&table_name, schema, &options)?;
        definition.declarations = Declarations {
            comment: definition.declarations.comment,
            retention: definition.declarations.retention,
            ..declarations
        };
        let live = placeable_workers(engine)?;
        let catalog = &engine.catalog;
        let creating = catalog.create_table(definition, &live, if_exists, &context.rights);
        return Ok(Completion::of_change(creating.await?.is_some()));
    };
    if !create.columns.is_empty() || !create.constraints.is_empty() {
        return Err(Error::invalid(format!(
            "table {name}: CREATE TABLE AS takes its columns from the query; rename and cast them there, and add constraints with ALTER TABLE"
        )));
    }
    let _place = context.wait_for_place(engine).await?;
    let statement = DfStatement::Statement(Box::new(Ast::Query(query)));
    let logical = context.plan(statement).await?;
    let coerced = coerced_schema(&context.state, &logical)?;
    let schema = stored_schema(context.shape, &name, &coerced)?;
    let definition = table_definition(&table_name, schema, &options)?;
    let live = placeable_workers(engine)?;
    let physical = context
        .state
        .create_physical_plan(&logical)
        .await
        .map_err(with_advice)?;
    let source = load::RowSource::from_plan(physical, context.task(), &context.runtimes)?;
    let (table, write) = engine
        .catalog
        .begin_create(definition, &live, if_exists, &context.rights)
        .await?;
    let rows = load::write_rows(
        engine.gateway_parts(context.owner()),
        context.query_id,
        &table,
        write,
        source,
    );
    Ok(Completion::with_writes(Some(rows.await?)))
}

/// Refuses an ON COMMIT that would need transactions. Each statement commits by itself, so rows
/// that do not survive a commit could never be read.
fn check_on_commit(table: &RelationName, on_commit: Option<&OnCommit>) -> Result<()> {
    match on_commit {
        None => Ok(()),
        Some(_) if !table.is_temporary() => Err(Error::invalid(format!(
            "table {table}: only temporary tables take ON COMMIT; write CREATE TEMPORARY TABLE, or leave it out"
        ))
        .with_sqlstate(SqlState::InvalidTableDefinition)),
        Some(OnCommit::PreserveRows) => Ok(()),
        Some(OnCommit::DeleteRows | OnCommit::Drop) => Err(Error::unsupported(format!(
            "table {table}: each statement commits by itself, so the table would be empty or gone before the next one; write ON COMMIT PRESERVE ROWS"
        ))),
    }
}

pub(super) fn placeable_workers(engine: &Engine) -> Result<Vec<WorkerId>> {
    let live = engine.cluster.live_workers();
    let wanted = engine.config.cluster.min_workers;
    if live.len() < wanted {
        return Err(Error::unavailable(format!(
            "{} workers are alive, but a new table needs at least {wanted} (gateway.cluster.min_workers); start more workers and retry",
            live.len()
        )));
    }
    Ok(live)
}

/// Refuses the forms of CREATE TABLE that sqlparser reads and Volary does not support, instead of
/// ignoring them.
fn refuse_unsupported_forms(create: &CreateTable) -> Result<()> {
    let refused = [
        (
            create.global == Some(true),
            "GLOBAL (a temporary table belongs to one session)",
        ),
        (create.external, "EXTERNAL"),
        (create.like.is_some(), "LIKE"),
        (
            create.partition_by.is_some(),
            "PARTITION BY (use shard_key)",
        ),
        (create.order_by.is_some(), "ORDER BY (use sort_key)"),
        (create.location.is_some(), "LOCATION"),
    ];
    match refused.iter().find(|(present, _)| *present) {
        Some((_, what)) => Err(Error::unsupported(format!(
            "CREATE TABLE does not take {what}; write CREATE TABLE t (column type [NOT NULL], …) WITH (shard_key = 'column', shards = 64)"
        ))),
        None => Ok(()),
    }
}

/// Returns the columns with the types that SQL declares. DataFusion plans the statement without
/// Volary's options.
async fn declared_schema(context: &StatementContext, create: CreateTable) -> Result<SchemaRef> {
    let name = create.name.to_string();
    let statement = DfStatement::Statement(Box::new(Ast::CreateTable(create)));
    let plan = context
        .state
        .statement_to_plan(statement)
        .await
        .map_err(with_advice)?;
    stored_schema(context.shape, &name, plan.schema().inner())
}

/// Returns the schema with which a table stores its rows. Column names must be distinct. Types that
/// Parquet would not return unchanged are replaced or refused.
pub(super) fn stored_schema(shape: ShapeLimits, table: &str, schema: &Schema) -> Result<SchemaRef> {
    shape.check_table(table, schema)?;
    if schema.fields().is_empty() {
        return Err(Error::invalid(format!(
            "table {table} has no columns; give it at least one"
        )));
    }
    check_distinct_names(&format!("table {table}"), schema)?;
    let mut fields: Vec<Field> = Vec::with_capacity(schema.fields().len());
    for field in schema.fields() {
        let data_type = stored_type(field.data_type()).ok_or_else(|| {
            Error::invalid(format!(
                "table {table}, column {}: type {} cannot be stored; cast it",
                field.name(),
                field.data_type()
            ))
        })?;
        fields.push(Field::new(field.name(), data_type, field.is_nullable()));
    }
    Ok(Arc::new(Schema::new(fields)))
}

fn stored_type(data_type: &DataType) -> Option<DataType> {
    Some(match data_type {
        DataType::Null | DataType::Utf8 | DataType::LargeUtf8 => DataType::Utf8View,
        DataType::Binary | DataType::LargeBinary => DataType::BinaryView,
        DataType::Dictionary(_, values) => stored_type(values)?,
        DataType::Union(_, _)
        | DataType::RunEndEncoded(_, _)
        | DataType::ListView(_)
        | DataType::LargeListView(_) => return None,
        DataType::Interval(_) => INTERVAL,
        nested if contains_interval(nested) => return None,
        // Parquet has no negative scales.
        DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale)
            if *scale < 0 =>
        {
            decimal_type(precision.saturating_add(scale.unsigned_abs()), 0)?
        }
        // An instant is the same whatever zone it was written in.
        DataType::Timestamp(unit, Some(_)) => DataType::Timestamp(*unit, Some(UTC.into())),
        other => transferable_type(other),
    })
}

/// Returns whether an interval is anywhere within the type. Parquet has no type for intervals with
/// nanoseconds, and workers only convert whole columns.
fn contains_interval(data_type: &DataType) -> bool {
    match data_type {
        DataType::Interval(_) => true,
        DataType::List(item)
        | DataType::LargeList(item)
        | DataType::FixedSizeList(item, _)
        | DataType::Map(item, _) => contains_interval(item.data_type()),
        DataType::Struct(fields) => fields
            .iter()
            .any(|field| contains_interval(field.data_type())),
        _ => false,
    }
}

/// Replaces those parts of a type that nodes cannot send to each other unchanged: see
/// [`can_send_unchanged`](volary_planner::fragment::encode::can_send_unchanged).
fn transferable_type(data_type: &DataType) -> DataType {
    let sent = |field: &FieldRef| {
        let field = Field::new(
            field.name(),
            transferable_type(field.data_type()),
            field.is_nullable(),
        )
        .with_metadata(field.metadata().clone());
        Arc::new(field)
    };
    match data_type {
        DataType::Dictionary(_, values) => transferable_type(values),
        DataType::List(item) | DataType::LargeList(item) => DataType::List(sent(item)),
        DataType::FixedSizeList(item, size) => DataType::FixedSizeList(sent(item), *size),
        DataType::Struct(fields) => DataType::Struct(fields.iter().map(sent).collect()),
        DataType::Map(entries, sorted) => DataType::Map(sent(entries), *sorted),
        other => other.clone(),
    }
}

pub(super) fn table_definition(
    name: &RelationName,
    schema: SchemaRef,
    options: &TableOptions,
) -> Result<TableDefinition> {
    let column = |key: &str, column: &str| {
        named_column(&schema, key, column).map_err(|error| error.at(format!("table {name}")))
    };
    let kind = match (&options.shard_key, options.is_reference) {
        (Some(key), false) => {
            let key = column("shard_key", key)?;
            let field = schema.field(key);
            check_key_type(field.data_type())
                .map_err(|error| error.at(format!("table {name}, column {}", field.name())))?;
            DefinitionKind::Sharded {
                key: Some(key),
                shards: options.shards.unwrap_or(DEFAULT_SHARDS),
            }
        }
        (None, true) if options.shards.is_none() => DefinitionKind::Reference,
        (None, false) => DefinitionKind::Sharded {
            key: None,
            shards: options.shards.unwrap_or(DEFAULT_SHARDS),
        },
        (_, true) => {
            return Err(Error::invalid(format!(
                "table {name}: a reference table has no shard_key and no shards; leave these options out"
            )));
        }
    };
    let sort_key = options
        .sort_key
        .iter()
        .map(|key| column("sort_key", key))
        .collect::<Result<Vec<_>>>()?;
    for key in &sort_key {
        let field = schema.field(*key);
        if *field.data_type() == INTERVAL {
            return Err(Error::invalid(format!(
                "table {name}, column {}: an INTERVAL cannot be a sort key, because different intervals can be equally long; use a DURATION or a number",
                field.name()
            )));
        }
    }
    let (keep, time_column) = (&options.retention, &options.time_column);
    let retention = retention(&schema, keep.as_deref(), time_column.as_deref())
        .map_err(|error| error.at(format!("table {name}")))?;
    Ok(TableDefinition {
        name: name.clone(),
        schema,
        kind,
        sort_key,
        declarations: Declarations {
            comment: options.comment.clone(),
            retention,
            ..Declarations::default()
        },
    })
}

impl TableOptions {
    fn parse(options: &CreateTableOptions) -> Result<Self> {
        let given = match options {
            CreateTableOptions::None => return Ok(Self::default()),
            CreateTableOptions::With(given) => given,
            CreateTableOptions::Plain(given) if let [SqlOption::Comment(comment)] = &given[..] => {
                let (CommentDef::WithEq(text) | CommentDef::WithoutEq(text)) = comment;
                return Ok(Self {
                    comment: Some(text.clone()),
                    ..Self::default()
                });
            }
            _ => return Err(Error::invalid("options are written WITH (name = value, …)")),
        };
        let mut parsed = Self::default();
        for option in given {
            let SqlOption::KeyValue { key, value } = option else {
                return Err(Error::invalid(format!(
                    "option {option} does not have the form name = value"
                )));
            };
            parsed.set(&identifier(key), literal_text(value), value)?;
        }
        Ok(parsed)
    }

    /// Sets an option by its name. `written` is the value as the user has written it.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for an option that does not exist, or a value that the option does not
    /// take.
    pub(super) fn set(
        &mut self,
        name: &str,
        text: String,
        written: impl std::fmt::Display,
    ) -> Result<()> {
        match name {
            "shard_key" => self.shard_key = Some(text),
            "sort_key" => {
                self.sort_key = text.split(',').map(|name| name.trim().to_owned()).collect();
            }
            "shards" => {
                self.shards = Some(text.parse().map_err(|_| {
                    Error::invalid(format!("shards takes a whole number, not {written}"))
                })?);
            }
            "reference" => {
                self.is_reference = text.parse().map_err(|_| {
                    Error::invalid(format!("reference takes true or false, not {written}"))
                })?;
            }
            "comment" => self.comment = Some(text),
            "retention" => self.retention = Some(text),
            "time_column" => self.time_column = Some(text),
            other => {
                return Err(Error::invalid(format!(
                    "there is no option {other}; there are shard_key, shards, sort_key, reference, comment, retention and time_column"
                )));
            }
        }
        Ok(())
    }
}

pub(super) async fn create_view(
    engine: &Engine,
    context: &StatementContext,
    view: CreateView,
    columns: SchemaRef,
) -> Result<()> {
    let written_name = WrittenName::of_reference(&view.name)?;
    let name = temporary::name_of_new(engine, context, &written_name, view.temporary)?;
    if !name.is_temporary() {
        let advice = "write CREATE TEMPORARY VIEW";
        context.refuse_temporary_reads(&format!("view {name}"), advice)?;
    }
    check_distinct_names(&format!("view {name}"), &columns)?;
    let sql = view
        .definition
        .ok_or_else(|| Error::internal(format!("view {name} was planned without its query")))?;
    let new = NewView {
        name,
        sql,
        search_schema: context.schema().to_owned(),
        schema: columns,
        parameters: None,
    };
    let catalog = &engine.catalog;
    let created = catalog.create_view(new, view.or_replace, &context.rights);
    created.await.map(|_| ())
}

/// Returns whether the statement is CREATE VIEW IF NOT EXISTS.
///
/// # Errors
/// `INVALID_ARGUMENT` if it is OR REPLACE, too.
pub(super) fn is_view_if_not_exists(statement: &DfStatement) -> Result<bool> {
    let DfStatement::Statement(ast) = statement else {
        return Ok(false);
    };
    match ast.as_ref() {
        Ast::CreateView(view) if view.if_not_exists && view.or_replace => Err(Error::invalid(
            "CREATE VIEW takes either OR REPLACE or IF NOT EXISTS; leave one out",
        )),
        Ast::CreateView(view) => Ok(view.if_not_exists),
        _ => Ok(false),
    }
}

/// Drops tables or views. Tells the workers of tables to delete their files, without waiting for
/// them. A worker that does not answer deletes the files when it is next asked for its report.
/// Returns whether anything was dropped.
pub(super) async fn drop_relations(
    engine: &Engine,
    context: &StatementContext,
    statement: DropStatement,
) -> Result<bool> {
    let DropStatement {
        kind,
        names,
        if_exists,
        is_temporary,
    } = statement;
    let names = names.iter().map(|name| match is_temporary {
        true => temporary::name_of_new(engine, context, name, true),
        false => context.user_relation(name),
    });
    let names: BTreeSet<_> = names.collect::<Result<_>>()?;
    let (catalog, by) = (&engine.catalog, &context.rights);
    match kind {
        DroppedKind::Table => {
            let dropped = catalog.drop_tables(names, if_exists, by).await?;
            for table in &dropped {
                delete_files(engine, table);
            }
            Ok(!dropped.is_empty())
        }
        DroppedKind::View => {
            let dropping = catalog.drop_views(ViewKind::View, names, if_exists, by);
            Ok(dropping.await? > 0)
        }
    }
}

/// Runs TRUNCATE. Returns whether there was a table to empty.
pub(super) async fn truncate(
    engine: &Engine,
    context: &StatementContext,
    statement: TruncateStatement,
) -> Result<bool> {
    let TruncateStatement { tables, if_exists } = statement;
    let names = tables.iter().map(|name| context.user_relation(name));
    let names: BTreeSet<_> = names.collect::<Result<_>>()?;
    let (catalog, by) = (&engine.catalog, &context.rights);
    let emptied = catalog.truncate_tables(names, if_exists, by).await?;
    for table in &emptied {
        delete_files(engine, table);
    }
    Ok(!emptied.is_empty())
}

#[cfg(test)]
mod tests {
    use volary_planner::fragment::encode;

    use super::*;

    #[test]
    fn what_is_stored_can_be_sent() {
        let texts = || DataType::Dictionary(Box::new(DataType::Int32), Box::new(DataType::Utf8));
        let field = |data_type| Arc::new(Field::new("item", data_type, true));
        let entries = DataType::Struct(vec![field(DataType::Utf8), field(texts())].into());
        for (data_type, stored) in [
            (texts(), DataType::Utf8View),
            (
                DataType::LargeList(field(texts())),
                DataType::List(field(DataType::Utf8)),
            ),
            (
                DataType::Map(field(entries), false),
                DataType::Map(
                    field(DataType::Struct(
                        vec![field(DataType::Utf8), field(DataType::Utf8)].into(),
                    )),
                    false,
                ),
            ),
            (
                DataType::List(field(DataType::Utf8)),
                DataType::List(field(DataType::Utf8)),
            ),
        ] {
            assert_eq!(stored_type(&data_type), Some(stored.clone()));
            let schema = Schema::new(vec![Field::new("c", stored, true)]);
            assert!(encode::can_send_unchanged(&schema));
        }
    }
}
