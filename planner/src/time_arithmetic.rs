use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::{DFSchema, ScalarValue};
use datafusion::error::Result;
use datafusion::logical_expr::expr::{Placeholder, ScalarFunction};
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawBinaryExpr};
use datafusion::logical_expr::{Expr, ExprSchemable, cast, lit};
use datafusion::sql::sqlparser::ast::BinaryOperator;
use volary_exec::intervals::{INTERVAL, has_length};
use volary_exec::postgres::{divide_interval, multiply_interval};

/// The type of a date that time is added to.
const MIDNIGHT: DataType = DataType::Timestamp(TimeUnit::Microsecond, None);

/// Plans arithmetic that DataFusion's planner refuses or plans otherwise than SQL says:
///
/// - An interval or a duration times a number, or divided by one.
/// - A timestamp plus or minus a number of days, which may have a fraction.
/// - A date plus or minus an interval that may have hours: DataFusion drops what is less than a
///   day. The result is a timestamp.
/// - `? || ?` and `? + ?`, whose operands tell no type, and `? || number`.
/// - `timestamp + ?` and `date + ?`: the parameter is an interval or a number of days, not another
///   time.
#[derive(Debug)]
pub struct TimeArithmetic;

impl ExprPlanner for TimeArithmetic {
    fn plan_binary_op(
        &self,
        mut operation: RawBinaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawBinaryExpr>> {
        let is_parameter = [
            is_untyped_parameter(&operation.left),
            is_untyped_parameter(&operation.right),
        ];
        let is_arithmetic = matches!(
            operation.op,
            BinaryOperator::Plus
                | BinaryOperator::Minus
                | BinaryOperator::Multiply
                | BinaryOperator::Divide
                | BinaryOperator::Modulo
        );
        let of_two_parameters = match operation.op {
            BinaryOperator::StringConcat => DataType::Utf8View,
            // A number of any size fits, and a driver that has a whole number sends it unchanged.
            _ if is_arithmetic => DataType::Float64,
            _ => return Ok(PlannerResult::Original(operation)),
        };
        if is_parameter == [true, true] {
            set_type(&mut operation.left, &of_two_parameters);
            set_type(&mut operation.right, &of_two_parameters);
            return Ok(PlannerResult::Original(operation));
        }
        let types = [&operation.left, &operation.right];
        let types = types.map(|operand| operand.get_type(schema).ok());
        let [Some(left), Some(right)] = types else {
            return Ok(PlannerResult::Original(operation));
        };
        if !is_arithmetic {
            // Other values become texts when they are joined to one.
            if is_parameter[0] && !right.is_nested() && !right.is_string() {
                set_type(&mut operation.left, &DataType::Utf8View);
            } else if is_parameter[1] && !left.is_nested() && !left.is_string() {
                set_type(&mut operation.right, &DataType::Utf8View);
            }
            return Ok(PlannerResult::Original(operation));
        }
        let is_number =
            |data_type: &DataType, side: usize| data_type.is_numeric() || is_parameter[side];
        let planned = match operation.op {
            BinaryOperator::Multiply if has_length(&left) && is_number(&right, 1) => {
                times(operation.left, operation.right)
            }
            BinaryOperator::Multiply if is_number(&left, 0) && has_length(&right) => {
                times(operation.right, operation.left)
            }
            BinaryOperator::Divide if has_length(&left) && is_number(&right, 1) => {
                let function = divide_interval();
                let arguments = vec![operation.left, operation.right];
                Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
            }
            BinaryOperator::Plus => {
                if is_added_to_time(&right, &left) && is_parameter[1] {
                    set_type(&mut operation.right, added_type(&left));
                } else if is_added_to_time(&left, &right) && is_parameter[0] {
                    set_type(&mut operation.left, added_type(&right));
                } else if is_timestamp(&left) && right.is_numeric() {
                    operation.right = days(operation.right);
                } else if left.is_numeric() && is_timestamp(&right) {
                    operation.left = days(operation.left);
                } else if is_date(&left) && may_have_time(&operation.right, schema) {
                    operation.left = cast(operation.left, MIDNIGHT);
                } else if may_have_time(&operation.left, schema) && is_date(&right) {
                    operation.right = cast(operation.right, MIDNIGHT);
                }
                return Ok(PlannerResult::Original(operation));
            }
            BinaryOperator::Minus => {
                if is_timestamp(&left) && right.is_numeric() {
                    operation.right = days(operation.right);
                } else if is_date(&left) && may_have_time(&operation.right, schema) {
                    operation.left = cast(operation.left, MIDNIGHT);
                }
                return Ok(PlannerResult::Original(operation));
            }
            _ => return Ok(PlannerResult::Original(operation)),
        };
        Ok(PlannerResult::Planned(planned))
    }
}

fn is_untyped_parameter(operand: &Expr) -> bool {
    matches!(operand, Expr::Placeholder(parameter) if parameter.field.is_none())
}

fn set_type(operand: &mut Expr, data_type: &DataType) {
    if let Expr::Placeholder(Placeholder { id, field }) = operand {
        *field = Some(Field::new(id.as_str(), data_type.clone(), true).into());
    }
}

fn is_timestamp(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Timestamp(_, _))
}

fn is_date(data_type: &DataType) -> bool {
    matches!(data_type, DataType::Date32 | DataType::Date64)
}

/// Returns whether the operand is an interval that may have hours, minutes or seconds. Whole days
/// are a constant, also times a whole number, so that a date plus days stays a date.
fn may_have_time(operand: &Expr, schema: &DFSchema) -> bool {
    match operand {
        Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(interval)), _) => {
            interval.nanoseconds != 0
        }
        Expr::Literal(ScalarValue::IntervalYearMonth(_), _) => false,
        Expr::ScalarFunction(call) if call.func.name() == multiply_interval().name() => {
            let [interval, number] = call.args.as_slice() else {
                return true;
            };
            let is_integer = number.get_type(schema).is_ok_and(|it| it.is_integer());
            !is_integer || may_have_time(interval, schema)
        }
        other => other.get_type(schema).is_ok_and(|it| has_length(&it)),
    }
}

/// Returns whether a value without a type is added to a time. It is then an interval or a number,
/// because two times have no sum.
fn is_added_to_time(added: &DataType, time: &DataType) -> bool {
    let is_time = matches!(
        time,
        DataType::Timestamp(_, _)
            | DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
    );
    is_time && added.is_null()
}

/// Returns the type of what is added to a time: a number of days to a date, an interval to others.
fn added_type(time: &DataType) -> &'static DataType {
    match time {
        DataType::Date32 | DataType::Date64 => &DataType::Int64,
        _ => &INTERVAL,
    }
}

fn times(interval: Expr, number: Expr) -> Expr {
    let arguments = vec![interval, number];
    Expr::ScalarFunction(ScalarFunction::new_udf(multiply_interval(), arguments))
}

/// Returns the interval of a number of days.
fn days(number: Expr) -> Expr {
    times(lit(ScalarValue::new_interval_mdn(0, 1, 0)), number)
}
