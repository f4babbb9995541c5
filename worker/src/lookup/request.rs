use std::sync::{Arc, OnceLock};

use arrow::datatypes::{DataType, Schema, SchemaRef};
use arrow_flight::FlightData;
use datafusion_proto::protobuf::physical_expr_node::ExprType;
use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
use datafusion_proto::protobuf::{PhysicalExprNode, PhysicalPlanNode};
use parking_lot::Mutex;
use prost::Message;
use volary_flight_proto::fragment::{Fragment, Leaf, Parameter, ShardScan, leaf, parameter};
use volary_flight_proto::ipc;

use super::keys::KeySource;
use super::search::is_searchable;

/// A fragment that asks one scan for the rows of some keys: a scan, a filter over it and, above
/// that, at most a projection and limits.
#[derive(Debug)]
pub(crate) struct KeyedFragment {
    pub(super) scan: ShardScan,
    /// The columns of the table.
    pub(super) table_schema: SchemaRef,
    /// The columns that the scan returns.
    pub(super) scanned_schema: SchemaRef,
    /// The parts of the filter that compare a column with values. The filter may have several.
    pub(super) tests: Vec<KeyTest>,
    /// All parts of the filter. They are joined by AND.
    pub(super) conditions: Vec<PhysicalExprNode>,
    /// The columns that the filter returns, by position in the scan.
    pub(super) columns: Vec<usize>,
    /// The projection above the filter: expressions over the columns of the filter.
    pub(super) outputs: Option<Vec<Output>>,
    /// Number of rows above which a limit leaves some out.
    pub(super) most_rows: Option<u64>,
    /// The schema of the rows, once the fragment has run in the ordinary way.
    schema: OnceLock<SchemaRef>,
    /// The message with the schema that was sent last, by what the ticket announced.
    schema_message: Mutex<Option<SchemaMessage>>,
}

/// A part of a filter that is true only for the rows that have one of some values in a column.
#[derive(Debug)]
pub(super) struct KeyTest {
    /// Position of the part among the conditions.
    pub(super) condition: usize,
    /// Position of the column in the table.
    pub(super) column: usize,
    pub(super) sources: Vec<KeySource>,
}

/// A column that a projection returns.
#[derive(Debug)]
pub(super) enum Output {
    /// A column of the projection's input, unchanged.
    Column(usize),
    /// Anything else.
    Expression(Box<PhysicalExprNode>),
}

/// The first message of an answer.
#[derive(Debug, Clone)]
pub(super) struct SchemaMessage {
    /// The encoded schema that the ticket announced; empty if it announced none.
    pub(super) announced: bytes::Bytes,
    pub(super) schema: SchemaRef,
    pub(super) message: FlightData,
}

impl KeyedFragment {
    /// Recognises a fragment that asks for rows by key.
    pub(crate) fn of(plan: &PhysicalPlanNode, settings: &Fragment) -> Option<Self> {
        if settings.ordered || settings.buckets.is_some() || settings.relayed.is_some() {
            return None;
        }
        let Operators {
            scan,
            filter,
            columns,
            outputs,
            most_rows,
        } = Operators::of(plan, settings.fetch)?;
        let table_schema = Arc::new(ipc::schema_from_bytes(&scan.table_schema).ok()?);
        let projection = scan.projection.iter().map(|column| *column as usize);
        let projection: Vec<usize> = projection.collect();
        let scanned_schema = Arc::new(table_schema.project(&projection).ok()?);
        if scan.reference || !is_supported(&scanned_schema) {
            return None;
        }
        let columns = match &columns[..] {
            [] => (0..projection.len()).collect(),
            columns => columns.to_vec(),
        };
        let mut conditions = Vec::new();
        split(filter, &mut conditions);
        let tests = conditions.iter().enumerate();
        let tests = tests.filter_map(|(condition, part)| {
            let (column, sources) = key_test(part)?;
            let field = scanned_schema.fields().get(column)?;
            is_searchable(field.data_type()).then_some(KeyTest {
                condition,
                column: projection[column],
                sources,
            })
        });
        let tests: Vec<_> = tests.collect();
        if tests.is_empty() || columns.iter().any(|column| *column >= projection.len()) {
            return None;
        }
        Some(Self {
            table_schema,
            scanned_schema,
            tests,
            conditions: conditions.into_iter().cloned().collect(),
            columns,
            outputs,
            most_rows,
            scan,
            schema: OnceLock::new(),
            schema_message: Mutex::default(),
        })
    }

    /// Learns the schema of the rows, when the fragment is run in the ordinary way. Until then, the
    /// fragment is not answered by key. So both ways have the same schema, whatever the operators
    /// make of names and metadata.
    pub(crate) fn note_schema(&self, schema: &SchemaRef) {
        self.schema.get_or_init(|| Arc::clone(schema));
    }

    /// Returns the schema of the rows, if it is known.
    pub(super) fn schema(&self) -> Option<&SchemaRef> {
        self.schema.get()
    }

    /// Returns the message with the schema for a ticket that announced this schema. `make` makes
    /// it if it is not the one that was sent last.
    pub(super) fn schema_message<E>(
        &self,
        announced: &bytes::Bytes,
        make: impl FnOnce() -> Result<SchemaMessage, E>,
    ) -> Result<SchemaMessage, E> {
        let last = self.schema_message.lock().clone();
        if let Some(last) = last.filter(|last| last.announced == *announced) {
            return Ok(last);
        }
        let made = make()?;
        *self.schema_message.lock() = Some(made.clone());
        Ok(made)
    }
}

/// The operators of a fragment that asks for rows by key.
struct Operators<'a> {
    scan: ShardScan,
    filter: &'a PhysicalExprNode,
    columns: Vec<usize>,
    outputs: Option<Vec<Output>>,
    most_rows: Option<u64>,
}

impl<'a> Operators<'a> {
    fn of(plan: &'a PhysicalPlanNode, fetch: Option<u64>) -> Option<Self> {
        let mut most_rows = fetch;
        let mut outputs = None;
        let mut node = plan;
        loop {
            node = match node.physical_plan_type.as_ref()? {
                PhysicalPlanType::Cooperative(cooperative) => cooperative.input.as_deref()?,
                PhysicalPlanType::CoalesceBatches(coalesce) => {
                    most_rows = lower(most_rows, coalesce.fetch.map(u64::from));
                    coalesce.input.as_deref()?
                }
                PhysicalPlanType::LocalLimit(limit) => {
                    most_rows = lower(most_rows, Some(u64::from(limit.fetch)));
                    limit.input.as_deref()?
                }
                PhysicalPlanType::GlobalLimit(limit) if limit.skip == 0 => {
                    most_rows = lower(most_rows, u64::try_from(limit.fetch).ok());
                    limit.input.as_deref()?
                }
                PhysicalPlanType::Projection(projection) if outputs.is_none() => {
                    let expressions = projection.expr.iter().map(output);
                    outputs = Some(expressions.collect::<Option<Vec<_>>>()?);
                    projection.input.as_deref()?
                }
                PhysicalPlanType::Filter(filter) => {
                    most_rows = lower(most_rows, filter.fetch.map(u64::from));
                    let columns = filter.projection.iter().map(|column| *column as usize);
                    let condition = filter.expr.as_ref()?;
                    if !is_plain(condition) {
                        return None;
                    }
                    return Some(Self {
                        scan: scan_below(filter.input.as_deref()?)?,
                        filter: condition,
                        columns: columns.collect(),
                        outputs,
                        most_rows,
                    });
                }
                _ => return None,
            };
        }
    }
}

/// Returns the lower of two limits.
fn lower(first: Option<u64>, second: Option<u64>) -> Option<u64> {
    first.into_iter().chain(second).min()
}

fn scan_below(plan: &PhysicalPlanNode) -> Option<ShardScan> {
    match plan.physical_plan_type.as_ref()? {
        PhysicalPlanType::Cooperative(cooperative) => scan_below(cooperative.input.as_deref()?),
        PhysicalPlanType::Extension(extension) if extension.inputs.is_empty() => {
            match Leaf::decode(&extension.node[..]).ok()?.kind? {
                leaf::Kind::Scan(scan) => Some(scan),
                leaf::Kind::Members(_) => None,
            }
        }
        _ => None,
    }
}

fn output(expression: &PhysicalExprNode) -> Option<Output> {
    match expression.expr_type.as_ref()? {
        ExprType::Column(column) => Some(Output::Column(column.index as usize)),
        _ => is_plain(expression).then(|| Output::Expression(Box::new(expression.clone()))),
    }
}

/// Returns whether rows with these columns are collected. Nested values are not: a few of them
/// could not be taken out of a decoded column without the memory of all. Intervals are stored in
/// parts.
fn is_supported(schema: &Schema) -> bool {
    let mut types = schema.fields().iter().map(|field| field.data_type());
    types.all(|data_type| {
        is_searchable(data_type)
            || matches!(
                data_type,
                DataType::Boolean
                    | DataType::Float16
                    | DataType::Float32
                    | DataType::Float64
                    | DataType::Decimal256(..)
            )
    })
}

/// Splits a condition into the parts that are joined by AND.
fn split<'a>(condition: &'a PhysicalExprNode, parts: &mut Vec<&'a PhysicalExprNode>) {
    match operands(condition, "And") {
        Some(operands) => operands
            .into_iter()
            .for_each(|operand| split(operand, parts)),
        None => parts.push(condition),
    }
}

/// Returns the operands of an operator, if the expression is one.
fn operands<'a>(expression: &'a PhysicalExprNode, name: &str) -> Option<Vec<&'a PhysicalExprNode>> {
    let Some(ExprType::BinaryExpr(binary)) = &expression.expr_type else {
        return None;
    };
    if binary.op != name {
        return None;
    }
    if !binary.operands.is_empty() {
        return Some(binary.operands.iter().collect());
    }
    Some(vec![binary.l.as_deref()?, binary.r.as_deref()?])
}

/// Returns the column that a condition compares with values, and where the ticket has the values.
/// Returns `None` if the condition is something else.
fn key_test(condition: &PhysicalExprNode) -> Option<(usize, Vec<KeySource>)> {
    if let Some(alternatives) = operands(condition, "Or") {
        // A short IN list is planned as comparisons joined by OR.
        let mut tests = alternatives.into_iter().map(key_test);
        let (column, mut sources) = tests.next()??;
        for test in tests {
            let (other, more) = test?;
            if other != column {
                return None;
            }
            sources.extend(more);
        }
        return Some((column, sources));
    }
    if let Some(operands) = operands(condition, "Eq") {
        let [left, right] = operands[..] else {
            return None;
        };
        let (column, value) = match (column(left), column(right)) {
            (Some(column), None) => (column, right),
            (None, Some(column)) => (column, left),
            _ => return None,
        };
        return Some((column, vec![literal(value)?]));
    }
    match condition.expr_type.as_ref()? {
        ExprType::InList(list) if !list.negated => {
            let sources = list.list.iter().map(literal).collect::<Option<Vec<_>>>()?;
            Some((column(list.expr.as_deref()?)?, sources))
        }
        ExprType::Extension(extension) => {
            let [key] = &extension.inputs[..] else {
                return None;
            };
            match Parameter::decode(&extension.expr[..]).ok()?.kind? {
                parameter::Kind::KeySet(ordinal) => {
                    Some((column(key)?, vec![KeySource::Set(ordinal)]))
                }
                parameter::Kind::Literal(_) => None,
            }
        }
        _ => None,
    }
}

fn column(expression: &PhysicalExprNode) -> Option<usize> {
    match expression.expr_type.as_ref()? {
        ExprType::Column(column) => Some(column.index as usize),
        _ => None,
    }
}

fn literal(expression: &PhysicalExprNode) -> Option<KeySource> {
    match expression.expr_type.as_ref()? {
        ExprType::Extension(extension) if extension.inputs.is_empty() => {
            match Parameter::decode(&extension.expr[..]).ok()?.kind? {
                parameter::Kind::Literal(ordinal) => Some(KeySource::Literal(ordinal)),
                parameter::Kind::KeySet(_) => None,
            }
        }
        _ => None,
    }
}

/// Returns whether an expression only compares and computes values of a fixed size. A function may
/// make values of any size, which need the limits that operators have.
fn is_plain(expression: &PhysicalExprNode) -> bool {
    let all_plain = |expressions: &[PhysicalExprNode]| expressions.iter().all(is_plain);
    let is_plain_child =
        |child: &Option<Box<PhysicalExprNode>>| child.as_deref().is_some_and(is_plain);
    match &expression.expr_type {
        Some(ExprType::Column(_) | ExprType::Literal(_)) => true,
        Some(ExprType::BinaryExpr(binary)) => {
            const PLAIN: [&str; 13] = [
                "And",
                "Or",
                "Eq",
                "NotEq",
                "Lt",
                "LtEq",
                "Gt",
                "GtEq",
                "Plus",
                "Minus",
                "Multiply",
                "IsDistinctFrom",
                "IsNotDistinctFrom",
            ];
            PLAIN.contains(&binary.op.as_str())
                && if binary.operands.is_empty() {
                    is_plain_child(&binary.l) && is_plain_child(&binary.r)
                } else {
                    all_plain(&binary.operands)
                }
        }
        Some(ExprType::IsNullExpr(test)) => is_plain_child(&test.expr),
        Some(ExprType::IsNotNullExpr(test)) => is_plain_child(&test.expr),
        Some(ExprType::NotExpr(not)) => is_plain_child(&not.expr),
        Some(ExprType::InList(list)) => is_plain_child(&list.expr) && all_plain(&list.list),
        Some(ExprType::Extension(extension)) => all_plain(&extension.inputs),
        _ => false,
    }
}
