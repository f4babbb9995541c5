//! The rows of parameters are not written into the statement. Instead, a projection of the stream
//! that the client sends replaces VALUES.

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
    DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder, Projection, Values,
};
use datafusion::physical_plan::EmptyRecordBatchStream;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::PartitionStream;
use futures::stream::{BoxStream, StreamExt};
use parking_lot::Mutex;
use volary_exec::text_casts::cast_expression;
use volary_flight_proto::Result;
use volary_flight_proto::ids::QueryId;

use super::context::StatementContext;
use super::frame_parameters::FrameParameters;
use super::noted_parse::parse_noted;
use super::outcome::{Completion, ExecutionResult, Start};
use super::parameters::{self, parameter_index};
use super::statement::run_plan;
use super::{Engine, IncomingRows, Session, batch_id};
use crate::sql::parse::Statement;

/// The outcome of a statement with many rows of parameters.
#[derive(Debug)]
pub(crate) enum InsertEachOutcome {
    /// The rows were inserted. Holds the number of inserted rows.
    Inserted(u64),
    /// Nothing was run, because the rows cannot be inserted as one write: see
    /// [`Engine::insert_each`]. The caller has to run the statement once for each of the rows.
    OneByOne(IncomingRows),
}

impl ExecutionResult for InsertEachOutcome {
    fn completion(&self) -> Option<Completion> {
        match self {
            Self::Inserted(rows) => Some(Completion::with_writes(Some(*rows))),
            Self::OneByOne(_) => None,
        }
    }
}

impl Engine {
    /// Inserts a row for each row of parameters, if the statement is an INSERT of one row of
    /// VALUES. Each column of `rows` is a parameter, by position. The names of the columns are
    /// ignored. `query_id`: see [`Self::execute`].
    ///
    /// # Errors
    /// Returns the errors of the statement and of the rows. After an error, no row is kept.
    pub(crate) async fn insert_each(
        self: &Arc<Self>,
        session: &Session,
        sql: &str,
        rows: IncomingRows,
        query_id: QueryId,
    ) -> Result<InsertEachOutcome> {
        let (engine, own, sql) = (Arc::clone(self), session.clone(), sql.to_owned());
        let work = insert_each(engine, own, sql, rows, query_id);
        self.run_statement(session, query_id, Start::OnCpu, work)
            .await
    }
}

async fn insert_each(
    engine: Arc<Engine>,
    session: Session,
    sql: String,
    rows: IncomingRows,
    query_id: QueryId,
) -> Result<InsertEachOutcome> {
    let (Statement::Planned(statement), _) = parse_noted(&engine, query_id, &sql)? else {
        return Ok(InsertEachOutcome::OneByOne(rows));
    };
    let context = StatementContext::new(&engine, &session, query_id, None, false)?;
    let LogicalPlan::Dml(insert) = context.plan(*statement).await? else {
        return Ok(InsertEachOutcome::OneByOne(rows));
    };
    let wanted = parameters::parameter_types(
        &LogicalPlan::Dml(insert.clone()),
        &FrameParameters::default(),
    )?;
    parameters::check_count(wanted.len(), rows.schema.fields().len())?;
    let columns = ParameterColumns::new(&rows.schema, wanted);
    let stream = Arc::new(OnceStream {
        schema: Arc::clone(&columns.schema),
        batches: Mutex::new(None),
    });
    let Some(input) = streaming_input(&insert.input, &columns, &stream)? else {
        return Ok(InsertEachOutcome::OneByOne(rows));
    };
    let (batch, rows) = batch_id::of_rows(&session, &sql, rows)?;
    *stream.batches.lock() = Some(rows.batches);
    let plan = LogicalPlan::Dml(DmlStatement::new(
        insert.table_name,
        insert.target,
        insert.op,
        Arc::new(input),
    ));
    let done = run_plan(&engine, &session, &context, plan, batch).await?;
    Ok(InsertEachOutcome::Inserted(done.rows.unwrap_or_default()))
}

/// The columns of the rows, and the types that the statement wants for them.
struct ParameterColumns {
    schema: SchemaRef,
    /// The type to cast each column to, by position. `None` if the column is used as it comes.
    casts: Vec<Option<DataType>>,
}

impl ParameterColumns {
    fn new(given: &Schema, wanted: Vec<Option<DataType>>) -> Self {
        let fields = given.fields().iter().enumerate();
        let fields: Vec<_> = fields
            .map(|(index, field)| {
                Field::new(parameter_name(index + 1), field.data_type().clone(), true)
            })
            .collect();
        let casts = fields.iter().zip(wanted).map(|(field, wanted)| {
            // Numbers keep their own type in computations, as literals of their values would. They
            // are cast when they are inserted into their column.
            let given = field.data_type();
            wanted.filter(|wanted| {
                let is_as_given = given == wanted
                    || (given.is_numeric() && wanted.is_numeric())
                    || (given.is_string() && wanted.is_string());
                !is_as_given
            })
        });
        let casts = casts.collect();
        Self {
            schema: Arc::new(Schema::new(fields)),
            casts,
        }
    }

    /// Returns whether an item of VALUES has the same value for each row, whether columns replace
    /// its parameters or the row's values are bound to them.
    fn has_same_value_as_bound(&self, item: &Expr) -> bool {
        if let Expr::Placeholder(_) = item {
            return true;
        }
        !matches_within(item, |part| match part {
            Expr::Placeholder(parameter) => parameter_index(parameter)
                .and_then(|index| self.casts.get(index))
                .is_none_or(Option::is_some),
            part => is_query(part),
        })
    }

    /// Returns the expression with columns in place of its parameters.
    fn replace_parameters(&self, expression: Expr, scan: &LogicalPlan) -> DfResult<Expr> {
        let replaced = expression.transform_up(|part| {
            let Expr::Placeholder(parameter) = &part else {
                return Ok(Transformed::no(part));
            };
            let Some(index) = parameter_index(parameter) else {
                return Ok(Transformed::no(part));
            };
            let column = Expr::Column(Column::from_name(parameter_name(index + 1)));
            Ok(Transformed::yes(match self.casts.get(index) {
                Some(Some(wanted)) => cast_expression(column, wanted, scan.schema())?,
                _ => column,
            }))
        });
        Ok(replaced?.data)
    }
}

fn parameter_name(number: usize) -> String {
    format!("${number}")
}

/// Returns the input of an INSERT that reads the stream in place of VALUES. Returns `None` if the
/// result might differ from running the INSERT once for each row. This is so in four cases. The
/// input may not be a single row of VALUES. It may have subqueries, which would be run once for all
/// rows. It may compute with a parameter that is cast, while [`parameters::bind`] decides for each
/// value whether to cast it. Or a column of VALUES may have the type NULL.
fn streaming_input(
    input: &LogicalPlan,
    columns: &ParameterColumns,
    stream: &Arc<OnceStream>,
) -> Result<Option<LogicalPlan>> {
    // The planner puts a projection above VALUES that casts rows to the table's columns.
    let (projection_above, values) = match input {
        LogicalPlan::Projection(projection) => (Some(projection), projection.input.as_ref()),
        values => (None, values),
    };
    let LogicalPlan::Values(Values { schema, values }) = values else {
        return Ok(None);
    };
    let [row] = values.as_slice() else {
        return Ok(None);
    };
    let projection_computes =
        projection_above.is_some_and(|above| above.expr.iter().any(has_parameters_or_queries));
    if projection_computes || !row.iter().all(|item| columns.has_same_value_as_bound(item)) {
        return Ok(None);
    }
    if schema
        .fields()
        .iter()
        .any(|field| field.data_type().is_null())
    {
        return Ok(None);
    }
    let table = StreamingTable::try_new(
        Arc::clone(&columns.schema),
        vec![Arc::clone(stream) as Arc<dyn PartitionStream>],
    )?;
    let source = provider_as_source(Arc::new(table));
    let scan = LogicalPlanBuilder::scan("parameters", source, None)?.build()?;
    let expressions = row.iter().zip(schema.fields()).map(|(expression, field)| {
        let expression = columns.replace_parameters(expression.clone(), &scan)?;
        let cast = cast_expression(expression, field.data_type(), scan.schema())?;
        Ok(cast.alias(field.name()))
    });
    let expressions = expressions.collect::<DfResult<Vec<_>>>()?;
    let rows = Projection::try_new(expressions, Arc::new(scan))?;
    let rows = LogicalPlan::Projection(rows);
    Ok(Some(match projection_above {
        None => rows,
        Some(above) => {
            LogicalPlan::Projection(Projection::try_new(above.expr.clone(), Arc::new(rows))?)
        }
    }))
}

fn has_parameters_or_queries(expression: &Expr) -> bool {
    matches_within(expression, |part| {
        matches!(part, Expr::Placeholder(_)) || is_query(part)
    })
}

fn is_query(expression: &Expr) -> bool {
    matches!(
        expression,
        Expr::ScalarSubquery(_)
            | Expr::InSubquery(_)
            | Expr::Exists(_)
            | Expr::SetComparison(_)
            | Expr::OuterReferenceColumn(..)
    )
}

fn matches_within(expression: &Expr, is_match: impl Fn(&Expr) -> bool) -> bool {
    // The closure never fails.
    expression.exists(|part| Ok(is_match(part))).unwrap_or(true)
}

/// The rows that a client sends. They can be read once.
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
