//! A statement must give the same answer with parameters as with literals of the same values. The
//! type of a parameter is only a guess, taken from what the parameter is compared or computed with.
//! So a cast to this type must not change the value.

use std::collections::HashSet;
use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, RecordBatch};
use datafusion::arrow::compute::{CastOptions, can_cast_types, cast_with_options};
use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ParamValues, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::Placeholder;
use datafusion::logical_expr::{BinaryExpr, DmlStatement, Expr, LogicalPlan, LogicalPlanBuilder};
use volary_exec::instants::cast_in_zone;
use volary_exec::postgres::interval_of_days;
use volary_exec::text_casts::{cast_column, cast_expression};
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};

use super::frame_parameters::FrameParameters;
use super::parameter_types::{ParameterType, types_of_parameters};
use crate::sql_type::sql_type_name;

/// Returns the types of a plan's parameters, by position. `frames` has those that are in the plan
/// already.
///
/// # Errors
/// `INVALID_ARGUMENT` for parameters that are not numbered from 1 without a gap.
pub(super) fn parameter_types(
    plan: &LogicalPlan,
    frames: &FrameParameters,
) -> Result<Vec<Option<DataType>>> {
    let types = found_types(plan, frames)?.into_iter();
    Ok(types
        .map(|found| found.map(|found| found.data_type))
        .collect())
}

fn found_types(plan: &LogicalPlan, frames: &FrameParameters) -> Result<Vec<Option<ParameterType>>> {
    let mut by_name = types_of_parameters(plan)?;
    for name in frames.names() {
        let rows = ParameterType {
            data_type: DataType::Int64,
            is_guess: false,
        };
        by_name.entry(name.clone()).or_insert(Some(rows));
    }
    let count = by_name.len();
    let mut types = Vec::with_capacity(count);
    for number in 1..=count {
        let name = format!("${number}");
        let found = by_name.remove(&name).ok_or_else(|| {
            Error::invalid(format!(
                "parameter {name} is missing: parameters are ? or $1 to $n without a gap"
            ))
        })?;
        types.push(found);
    }
    Ok(types)
}

/// Returns the plan with these types set for its parameters.
///
/// # Errors
/// Fails if the plan cannot be traversed.
pub(super) fn with_types(plan: LogicalPlan, types: &[Option<DataType>]) -> DfResult<LogicalPlan> {
    replace_parameters(plan, |parameter| {
        let data_type =
            parameter_index(&parameter).and_then(|number| types.get(number)?.clone())?;
        let field = Field::new(&parameter.id, data_type, true);
        Some(Expr::Placeholder(Placeholder {
            id: parameter.id,
            field: Some(Arc::new(field)),
        }))
    })
}

/// Returns the plan with other expressions in place of those parameters for which `replace` returns
/// one.
///
/// # Errors
/// Fails if the plan cannot be traversed.
pub(super) fn replace_parameters(
    plan: LogicalPlan,
    replace: impl Fn(Placeholder) -> Option<Expr>,
) -> DfResult<LogicalPlan> {
    let plan = plan.transform_up_with_subqueries(|node| {
        node.map_expressions(|expression| {
            expression.transform_up(|expression| match &expression {
                Expr::Placeholder(parameter) => Ok(match replace(parameter.clone()) {
                    Some(other) => Transformed::yes(other),
                    None => Transformed::no(expression),
                }),
                _ => Ok(Transformed::no(expression)),
            })
        })
    })?;
    Ok(plan.data)
}

/// Returns the index of a parameter `$n`, counted from 0.
pub(super) fn parameter_index(parameter: &Placeholder) -> Option<usize> {
    let number: usize = parameter.id.strip_prefix('$')?.parse().ok()?;
    number.checked_sub(1)
}

/// The parameters of a plan, with what is needed to cast values for them.
#[derive(Debug)]
pub(super) struct Parameters {
    parameters: Vec<Parameter>,
    /// The time zone of values that are instants only with a zone.
    zone: Arc<str>,
}

#[derive(Debug)]
struct Parameter {
    /// The type that the plan wants. `None` where the type cannot be inferred.
    wanted: Option<ParameterType>,
    /// Says whether the parameter is an operand of an arithmetic operator: see
    /// [`arithmetic_parameters`].
    is_computed_with: bool,
}

impl Parameters {
    /// Finds the parameters of a plan, and those in `frames`, which are in it already. Values
    /// without a time zone become instants in `zone`.
    ///
    /// # Errors
    /// See [`parameter_types`].
    pub(super) fn from_plan(
        plan: &LogicalPlan,
        frames: &FrameParameters,
        zone: Arc<str>,
    ) -> Result<Self> {
        let types = found_types(plan, frames)?;
        let operands = if types.is_empty() {
            HashSet::new()
        } else {
            arithmetic_parameters(plan)?
        };
        let parameters = (1..).zip(types).map(|(number, wanted)| Parameter {
            wanted,
            is_computed_with: operands.contains(&format!("${number}")),
        });
        Ok(Self {
            parameters: parameters.collect(),
            zone,
        })
    }

    /// Returns whether comparisons with the parameters mean the same as comparisons with these
    /// literals. A number beside a text, and the other way around, is compared by rules of its own.
    pub(super) fn mean_the_same_as(&self, literals: &RecordBatch) -> bool {
        let literals = literals.columns().iter();
        let mut pairs = literals.zip(&self.parameters);
        pairs.all(|(literal, parameter)| {
            let wanted = parameter.wanted.as_ref().map(|wanted| &wanted.data_type);
            wanted.is_some_and(|wanted| match literal.data_type() {
                DataType::Int64 => wanted.is_numeric(),
                DataType::Utf8 => {
                    wanted.is_string() || wanted.is_integer() || *wanted == DataType::Date32
                }
                _ => false,
            })
        })
    }

    /// Returns whether each of these values has the type that the plan wants for its parameter. A
    /// value that the type does not have keeps its own type, so that the column is cast instead.
    pub(super) fn have_types_of(&self, values: &[ScalarValue]) -> bool {
        let mut pairs = values.iter().zip(&self.parameters);
        pairs.all(|(value, parameter)| {
            let wanted = parameter.wanted.as_ref();
            wanted.is_none_or(|wanted| value.data_type() == wanted.data_type)
        })
    }

    /// Returns the values of the one given row for the parameters, cast where that does not change
    /// them.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a wrong number of values or rows, or for a value that cannot be cast
    /// to the type that the plan wants.
    pub(super) fn values(&self, given: Option<&RecordBatch>) -> Result<Vec<ScalarValue>> {
        let count = given.map_or(0, RecordBatch::num_columns);
        check_count(self.parameters.len(), count)?;
        let Some(given) = given.filter(|_| count > 0) else {
            return Ok(Vec::new());
        };
        if given.num_rows() != 1 {
            return Err(Error::invalid(format!(
                "{} rows of parameters were given; a query takes one",
                given.num_rows()
            )));
        }
        let columns = (1..).zip(given.columns().iter().zip(&self.parameters));
        columns
            .map(|(number, (column, parameter))| parameter.value(number, column, &self.zone))
            .collect()
    }
}

impl Parameter {
    /// Returns the value for the parameter with this number.
    fn value(&self, number: usize, column: &ArrayRef, zone: &Arc<str>) -> Result<ScalarValue> {
        let given = || Ok(ScalarValue::try_from_array(column, 0)?);
        let Some(wanted) = &self.wanted else {
            return given();
        };
        if self.is_computed_with {
            match operand(column.data_type(), &wanted.data_type) {
                Operand::AsGiven => return given(),
                Operand::Days => return days_as_interval(&given()?),
                Operand::Cast => {}
            }
        }
        match cast_if_unchanged(number, column, &wanted.data_type, zone) {
            Err(_) if wanted.is_guess => given(),
            cast => cast,
        }
    }
}

/// How the value for an operand of an arithmetic operator is bound.
enum Operand {
    /// Keeps its own type.
    AsGiven,
    /// Becomes the interval of so many days.
    Days,
    /// Is cast to the type that the plan wants.
    Cast,
}

/// Returns how a value of the type `given` is bound to an operand that was announced as `wanted`.
/// Numbers keep their types. Beside a date or a timestamp, the operand may also be an interval or a
/// number of days.
fn operand(given: &DataType, wanted: &DataType) -> Operand {
    let is_interval =
        |side: &DataType| matches!(side, DataType::Interval(_) | DataType::Duration(_));
    match wanted {
        DataType::Timestamp(_, _) | DataType::Interval(_) if given.is_numeric() => Operand::Days,
        wanted if wanted.is_numeric() || matches!(wanted, DataType::Date32 | DataType::Date64) => {
            if given.is_numeric() || is_interval(given) {
                Operand::AsGiven
            } else {
                Operand::Cast
            }
        }
        DataType::Timestamp(_, _)
        | DataType::Time32(_)
        | DataType::Time64(_)
        | DataType::Interval(_)
            if is_interval(given) =>
        {
            Operand::AsGiven
        }
        _ => Operand::Cast,
    }
}

/// Returns the interval of a number of days.
fn days_as_interval(number: &ScalarValue) -> Result<ScalarValue> {
    let ScalarValue::Float64(days) = number.cast_to(&DataType::Float64)? else {
        return Ok(number.clone());
    };
    Ok(match days {
        Some(days) => ScalarValue::IntervalMonthDayNano(Some(interval_of_days(days)?)),
        None => ScalarValue::IntervalMonthDayNano(None),
    })
}

/// Checks the number of values.
///
/// # Errors
/// `INVALID_ARGUMENT` if the number of values differs from the number of the statement's
/// parameters.
pub(super) fn check_count(parameters: usize, values: usize) -> Result<()> {
    if parameters == values {
        return Ok(());
    }
    let parameters = match parameters {
        1 => "1 parameter".to_owned(),
        _ => format!("{parameters} parameters"),
    };
    let values = match values {
        1 => "1 value was".to_owned(),
        _ => format!("{values} values were"),
    };
    Err(Error::invalid(format!(
        "the statement has {parameters}, but {values} given"
    ))
    .with_sqlstate(SqlState::ParameterCountMismatch))
}

/// Returns the plan with values in place of its parameters. For `zone` see
/// [`Parameters::from_plan`].
///
/// # Errors
/// Returns the errors of [`Parameters::values`].
pub(super) fn bind(
    plan: LogicalPlan,
    values: Option<&RecordBatch>,
    frames: &FrameParameters,
    zone: Arc<str>,
) -> Result<LogicalPlan> {
    let values = Parameters::from_plan(&plan, frames, zone)?.values(values)?;
    if values.is_empty() {
        return Ok(plan);
    }
    let values = ParamValues::from(values);
    match plan {
        LogicalPlan::Dml(statement) => {
            let planned = Arc::clone(statement.input.schema());
            let bound = LogicalPlan::Dml(statement).with_param_values(values)?;
            Ok(cast_input(bound, &planned)?)
        }
        query => Ok(query.with_param_values(values)?),
    }
}

/// Returns the names of the parameters that are added, multiplied, summed and so on. Such an
/// operator or aggregate gives another result for an equal value of another type: `5 / 2.0` is not
/// `5 / 2`.
fn arithmetic_parameters(plan: &LogicalPlan) -> Result<HashSet<String>> {
    let mut names = HashSet::new();
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|expression| {
                match expression {
                    Expr::BinaryExpr(BinaryExpr { left, op, right })
                        if op.is_numerical_operators() =>
                    {
                        note_operand(left, &mut names);
                        note_operand(right, &mut names);
                    }
                    Expr::Negative(operand) => note_operand(operand, &mut names),
                    Expr::AggregateFunction(call) => {
                        for argument in &call.params.args {
                            note_operand(argument, &mut names);
                        }
                    }
                    Expr::WindowFunction(call) => {
                        for argument in &call.params.args {
                            note_operand(argument, &mut names);
                        }
                    }
                    _ => {}
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(names)
}

/// Notes the parameters that are an operand, or of which a CASE chooses an operand.
fn note_operand(operand: &Expr, names: &mut HashSet<String>) {
    match operand {
        Expr::Placeholder(parameter) => {
            names.insert(parameter.id.clone());
        }
        Expr::Negative(inner) => note_operand(inner, names),
        Expr::Case(case) => {
            let results = case.when_then_expr.iter().map(|(_, then)| then);
            for result in results.chain(&case.else_expr) {
                note_operand(result, names);
            }
        }
        _ => {}
    }
}

fn are_numbers(column: &ArrayRef, wanted: &DataType) -> bool {
    column.data_type().is_numeric() && wanted.is_numeric()
}

/// Casts the value to the type that the plan wants, because the planner finds shards by keys of
/// that type. Returns the value as it was given if the cast would change it. The analyzer then
/// finds a common type for both sides, as it does for literals.
fn cast_if_unchanged(
    number: usize,
    column: &ArrayRef,
    wanted: &DataType,
    zone: &Arc<str>,
) -> Result<ScalarValue> {
    let given = ScalarValue::try_from_array(column, 0)?;
    if column.data_type() == wanted {
        return Ok(given);
    }
    let strict = CastOptions {
        safe: false,
        ..CastOptions::default()
    };
    let cast = |column: &ArrayRef, wanted: &DataType| {
        cast_column(column, wanted, |column, wanted| {
            cast_with_options(column, wanted, &strict)
        })
    };
    let cast = match cast_in_zone(column, wanted, zone, cast) {
        Ok(cast) => cast,
        // The value is out of the type's range.
        Err(_) if are_numbers(column, wanted) => return Ok(given),
        Err(source) => {
            let sqlstate = SqlState::of_arrow(&source);
            let error = Error::with_source(
                ErrorCode::InvalidArgument,
                format!(
                    "parameter {number} is {}, but the statement needs {}",
                    sql_type_name(column.data_type()),
                    sql_type_name(wanted)
                ),
                source,
            );
            return Err(error.with_sqlstate(sqlstate));
        }
    };
    // A text is parsed, like the text of a literal. The same value may be written in many ways, so
    // comparing the texts would prove nothing.
    let skips_comparison = given.is_null()
        || column.data_type().is_string()
        || !can_cast_types(wanted, column.data_type());
    let is_same = skips_comparison
        || cast_with_options(&cast, column.data_type(), &strict)
            .and_then(|back| Ok(ScalarValue::try_from_array(&back, 0)? == given))
            .unwrap_or(false);
    if is_same {
        Ok(ScalarValue::try_from_array(&cast, 0)?)
    } else {
        Ok(given)
    }
}

/// Casts the input rows of a DML statement to the planned types. The planner adds casts to the
/// table's types where it sees other types. It does not see the type of a value that keeps its own
/// type, so that value is cast here.
fn cast_input(plan: LogicalPlan, planned: &DFSchema) -> DfResult<LogicalPlan> {
    let LogicalPlan::Dml(statement) = plan else {
        return Ok(plan);
    };
    let schema = Arc::clone(statement.input.schema());
    let types = planned.fields().iter().map(|field| field.data_type());
    if schema
        .fields()
        .iter()
        .map(|field| field.data_type())
        .eq(types.clone())
    {
        return Ok(LogicalPlan::Dml(statement));
    }
    let columns = schema
        .iter()
        .zip(types)
        .map(|((qualifier, field), data_type)| {
            let column = Expr::Column(Column::from((qualifier, field)));
            Ok(cast_expression(column, data_type, &schema)?.alias(field.name()))
        })
        .collect::<DfResult<Vec<_>>>()?;
    let rows = LogicalPlanBuilder::new_from_arc(statement.input)
        .project(columns)?
        .build()?;
    Ok(LogicalPlan::Dml(DmlStatement::new(
        statement.table_name,
        statement.target,
        statement.op,
        Arc::new(rows),
    )))
}

#[cfg(test)]
mod tests {
    use datafusion::arrow::array::{
        Array, Date32Array, Decimal128Array, Float64Array, Int64Array, StringArray,
        TimestampMicrosecondArray, new_null_array,
    };
    use datafusion::arrow::datatypes::TimeUnit;
    use volary_exec::instants::UTC;

    use super::*;

    const MICROSECONDS: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);
    const PRICE: DataType = DataType::Decimal128(15, 2);
    const DAY_US: i64 = 24 * 60 * 60 * 1_000_000;

    fn one(array: impl Array + 'static) -> ArrayRef {
        Arc::new(array)
    }

    fn long(value: i64) -> ArrayRef {
        one(Int64Array::from(vec![value]))
    }

    fn double(value: f64) -> ArrayRef {
        one(Float64Array::from(vec![value]))
    }

    fn text(value: &str) -> ArrayRef {
        one(StringArray::from(vec![value]))
    }

    fn moment(value: i64) -> ArrayRef {
        one(TimestampMicrosecondArray::from(vec![value]))
    }

    fn bound_type(value: &ArrayRef, wanted: &DataType) -> DataType {
        cast_if_unchanged(1, value, wanted, &UTC.into())
            .unwrap()
            .data_type()
    }

    #[test]
    fn a_value_that_fits_gets_the_type_of_its_parameter() {
        for (value, wanted) in [
            (long(7), DataType::Int32),
            (long(7), PRICE),
            (double(7.0), DataType::Int64),
            (double(0.07), PRICE),
            (text("2026-01-01"), DataType::Date32),
            (text("2026-01-01"), MICROSECONDS),
            (text("kea"), DataType::Utf8View),
            (one(Date32Array::from(vec![1])), MICROSECONDS),
            (moment(DAY_US), DataType::Date32),
            (new_null_array(&DataType::Null, 1), DataType::Date32),
            (new_null_array(&DataType::Int64, 1), DataType::Int32),
        ] {
            assert_eq!(bound_type(&value, &wanted), wanted, "{value:?}");
        }
    }

    #[test]
    fn a_value_that_a_cast_would_change_keeps_its_type() {
        let thousandths = Decimal128Array::from(vec![75])
            .with_precision_and_scale(4, 3)
            .unwrap();
        for (value, wanted) in [
            (double(1.5), DataType::Int64),
            (double(1e30), DataType::Int64),
            (long(1 << 40), DataType::Int32),
            (long((1 << 53) + 1), DataType::Float64),
            (double(0.075), PRICE),
            (one(thousandths), PRICE),
            (moment(DAY_US + 1), DataType::Date32),
        ] {
            let own = value.data_type().clone();
            assert_eq!(bound_type(&value, &wanted), own, "{value:?}");
        }
    }

    #[test]
    fn text_that_is_none_of_the_type_is_refused() {
        let error = cast_if_unchanged(1, &text("kea"), &DataType::Int64, &UTC.into()).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(
            error.message().contains("parameter 1 is VARCHAR"),
            "{error}"
        );
    }
}
