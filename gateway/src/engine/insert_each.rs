//! An INSERT of VALUES for many rows of parameters, which is one write: all of its rows are kept, or none.
//!
//! The rows are not written into the statement but stream past it: VALUES becomes a projection of what the client sends.

use std::fmt;
use std::sync::Arc;

use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::catalog::streaming::StreamingTable;
use datafusion::common::Column;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::datasource::provider_as_source;
use datafusion::error::Result as DfResult;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{
    DmlStatement, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Projection, SubqueryAlias,
    Values,
};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::{Error, Result};

use super::context::StatementContext;
use super::parameters;
use super::parse::{Statement, parse};
use super::statement::run_plan;
use super::{Engine, Outcome, Session};

/// Rows of parameters: a column a parameter, by position.
pub struct ParameterRows {
    /// The types; names mean nothing.
    pub schema: SchemaRef,
    /// The rows, as they come.
    pub batches: BoxStream<'static, Result<RecordBatch>>,
}

impl fmt::Debug for ParameterRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParameterRows")
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}

/// What became of a statement with many rows of parameters.
#[derive(Debug)]
pub enum Each {
    /// So many rows were inserted.
    Inserted(u64),
    /// Nothing was run: it is no INSERT of VALUES, and is to be run once for each of the rows.
    OneByOne(ParameterRows),
}

impl Engine {
    /// Inserts a row for each row of parameters, if the statement is an INSERT of one row of VALUES. `query_id`: see
    /// [`Self::execute`].
    ///
    /// # Errors
    /// Those of the statement and of the rows. Then no row is kept.
    pub async fn insert_each(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        rows: ParameterRows,
        query_id: QueryId,
    ) -> Result<Each> {
        let (engine, session, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        self.on_cpu(insert_each(engine, session, sql, rows, query_id))
            .await
    }
}

async fn insert_each(
    engine: Arc<Engine>,
    session: Session,
    sql: String,
    rows: ParameterRows,
    query_id: QueryId,
) -> Result<Each> {
    let Statement::Planned(statement) = parse(&sql)? else {
        return Ok(Each::OneByOne(rows));
    };
    let context = StatementContext::new(&engine, &session, query_id, None, false)?;
    let LogicalPlan::Dml(insert) = context.plan(*statement).await? else {
        return Ok(Each::OneByOne(rows));
    };
    let wanted = parameters::types(&LogicalPlan::Dml(insert.clone()))?;
    parameters::check_count(wanted.len(), rows.schema.fields().len())?;
    let columns = Columns::new(&rows.schema, wanted);
    let stream = Arc::new(OnceStream {
        schema: Arc::clone(&columns.schema),
        batches: Mutex::new(None),
    });
    let Some(input) = with_rows(&insert.input, &columns, &stream)? else {
        return Ok(Each::OneByOne(rows));
    };
    *stream.batches.lock() = Some(rows.batches);
    let plan = LogicalPlan::Dml(DmlStatement::new(
        insert.table_name,
        insert.target,
        insert.op,
        Arc::new(input),
    ));
    match run_plan(&engine, &session, &context, plan).await? {
        Outcome::Done(rows) => {
            session.since_begin.has_written();
            Ok(Each::Inserted(rows.unwrap_or_default()))
        }
        Outcome::Rows(_) => Err(Error::internal("an INSERT was planned as a query")),
    }
}

/// The columns of the rows, and what each is wanted as.
struct Columns {
    schema: SchemaRef,
    /// By number, from 1: `None` where it is as it comes.
    casts: Vec<Option<DataType>>,
}

impl Columns {
    fn new(given: &Schema, wanted: Vec<Option<DataType>>) -> Self {
        let fields = given.fields().iter().enumerate();
        let fields: Vec<_> = fields
            .map(|(index, field)| Field::new(name(index + 1), field.data_type().clone(), true))
            .collect();
        let casts = fields.iter().zip(wanted).map(|(field, wanted)| {
            // Numbers are computed with as they are, as a literal of their value would be; the column that they go to casts them.
            wanted.filter(|wanted| !(field.data_type().is_numeric() && wanted.is_numeric()))
        });
        let casts = casts.collect();
        Self {
            schema: Arc::new(Schema::new(fields)),
            casts,
        }
    }

    /// The expression with columns in place of its parameters.
    fn in_place_of_parameters(&self, expression: Expr, scan: &LogicalPlan) -> DfResult<Expr> {
        let replaced = expression.transform_up(|part| {
            let Expr::Placeholder(parameter) = &part else {
                return Ok(Transformed::no(part));
            };
            let number = parameter.id.trim_start_matches('$').parse::<usize>();
            let Some(index) = number.ok().and_then(|number| number.checked_sub(1)) else {
                return Ok(Transformed::no(part));
            };
            let column = Expr::Column(Column::from_name(name(index + 1)));
            Ok(Transformed::yes(match self.casts.get(index) {
                Some(Some(wanted)) => column.cast_to(wanted, scan.schema())?,
                _ => column,
            }))
        });
        Ok(replaced?.data)
    }
}

fn name(number: usize) -> String {
    format!("${number}")
}

/// The input of an INSERT that reads a stream where it had VALUES; `None` if it does more than that.
fn with_rows(
    input: &LogicalPlan,
    columns: &Columns,
    stream: &Arc<OnceStream>,
) -> Result<Option<LogicalPlan>> {
    let replaced = match input {
        LogicalPlan::Projection(projection) => {
            let Some(below) = with_rows(&projection.input, columns, stream)? else {
                return Ok(None);
            };
            LogicalPlan::Projection(Projection::try_new(
                projection.expr.clone(),
                Arc::new(below),
            )?)
        }
        LogicalPlan::SubqueryAlias(alias) => {
            let Some(below) = with_rows(&alias.input, columns, stream)? else {
                return Ok(None);
            };
            LogicalPlan::SubqueryAlias(SubqueryAlias::try_new(
                Arc::new(below),
                alias.alias.clone(),
            )?)
        }
        LogicalPlan::Values(Values { schema, values }) => {
            let [row] = values.as_slice() else {
                return Ok(None);
            };
            let table = StreamingTable::try_new(
                Arc::clone(&columns.schema),
                vec![Arc::clone(stream) as Arc<dyn PartitionStream>],
            )?;
            let scan =
                LogicalPlanBuilder::scan("parameters", provider_as_source(Arc::new(table)), None)?
                    .build()?;
            let expressions = row.iter().zip(schema.fields()).map(|(expression, field)| {
                let expression = columns.in_place_of_parameters(expression.clone(), &scan)?;
                let cast = expression.cast_to(field.data_type(), scan.schema())?;
                Ok(cast.alias(field.name()))
            });
            let expressions = expressions.collect::<DfResult<Vec<_>>>()?;
            LogicalPlan::Projection(Projection::try_new(expressions, Arc::new(scan))?)
        }
        _ => return Ok(None),
    };
    // One that is left is that of a subquery.
    let has_parameters = !replaced.get_parameter_names()?.is_empty();
    Ok((!has_parameters).then_some(replaced))
}

/// What a client sends, which can be read once.
struct OnceStream {
    schema: SchemaRef,
    batches: Mutex<Option<BoxStream<'static, Result<RecordBatch>>>>,
}

impl fmt::Debug for OnceStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnceStream").finish_non_exhaustive()
    }
}

impl PartitionStream for OnceStream {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let schema = Arc::clone(&self.schema);
        let Some(batches) = self.batches.lock().take() else {
            return Box::pin(EmptyRecordBatchStream::new(schema));
        };
        let renamed = batches.map(move |batch| {
            let columns = batch?.columns().to_vec();
            Ok(RecordBatch::try_new(Arc::clone(&schema), columns)?)
        });
        Box::pin(RecordBatchStreamAdapter::new(
            Arc::clone(&self.schema),
            renamed,
        ))
    }
}
