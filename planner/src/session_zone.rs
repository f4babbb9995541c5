//! Instants have the time zone UTC in their Arrow type ([`volary_exec::instants`]). The time zone
//! of the session decides how they are read and written. So [`SessionZone`] writes it into the
//! expressions that turn text, dates and times of day into instants, or instants into these. The
//! types of these expressions stay the same. A fragment therefore means the same on every node,
//! whatever settings the node has.
//!
//! The columns of a query's result get the time zone of the session, so that clients show instants
//! in it.

use std::sync::Arc;

use datafusion::arrow::array::timezone::Tz;
use datafusion::arrow::datatypes::{DataType, TimeUnit};
use datafusion::common::config::ConfigOptions;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DFSchema, ScalarValue, internal_err, plan_err};
use datafusion::error::Result;
use datafusion::functions::datetime::expr_fn::to_local_time;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::{
    BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, LogicalPlanBuilder, Operator, ScalarUDF,
    TryCast, cast, lit, try_cast,
};
use datafusion::optimizer::AnalyzerRule;
use volary_exec::instants::{self, UTC, is_instant, is_local, is_utc};
use volary_exec::zoned_sum::zoned_sum;

use crate::rewrite_parts::rewrite_parts;
use crate::session_settings::SessionSettings;

/// Functions of instants whose value depends on the time zone.
const OF_LOCAL_TIME: [&str; 8] = [
    "date_bin",
    "date_part",
    "date_trunc",
    "generate_series",
    "range",
    "to_char",
    "to_date",
    "to_local_time",
];

/// Functions that make instants from texts, dates and times.
const TO_TIMESTAMP: [&str; 5] = [
    "to_timestamp",
    "to_timestamp_seconds",
    "to_timestamp_millis",
    "to_timestamp_micros",
    "to_timestamp_nanos",
];

/// Writes the time zone of the session into the expressions that depend on it. It must run after
/// the rule that makes the types of operands agree.
#[derive(Debug)]
pub struct SessionZone;

impl AnalyzerRule for SessionZone {
    fn name(&self) -> &'static str {
        "session_zone"
    }

    fn analyze(&self, plan: LogicalPlan, options: &ConfigOptions) -> Result<LogicalPlan> {
        let zone = Zone(SessionSettings::time_zone(options));
        let may_change = |part: &Expr| zone.may_change(part);
        let plan = rewrite_parts(plan, may_change, |part, schema| zone.rewrite(part, schema))?;
        zone.show_result(plan)
    }
}

/// The time zone of a session.
#[derive(Debug)]
struct Zone(Arc<str>);

impl Zone {
    /// Returns whether [`Self::rewrite`] may change the expression. In UTC, it only changes casts
    /// to and from other zones, and calls of `to_unixtime`.
    fn may_change(&self, expression: &Expr) -> bool {
        match expression {
            Expr::Cast(_) | Expr::TryCast(_) => true,
            // DataFusion reads the texts of to_unixtime in nanoseconds.
            Expr::ScalarFunction(call) => !is_utc(&self.0) || call.func.name() == "to_unixtime",
            Expr::BinaryExpr(operation) => !is_utc(&self.0) && is_sum(operation.op),
            _ => false,
        }
    }

    fn rewrite(&self, part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        let converted = match &part {
            Expr::Cast(Cast { expr, field }) => {
                check_zone(field.data_type())?;
                let from = expr.get_type(schema)?;
                self.convert(expr, &from, field.data_type(), Conversion::Cast)
            }
            Expr::TryCast(TryCast { expr, field }) => {
                check_zone(field.data_type())?;
                let from = expr.get_type(schema)?;
                self.convert(expr, &from, field.data_type(), Conversion::TryCast)
            }
            Expr::ScalarFunction(_) | Expr::BinaryExpr(_) => return self.compute(part, schema),
            _ => None,
        };
        Ok(match converted {
            Some(converted) => Transformed::yes(converted),
            None => Transformed::no(part),
        })
    }

    fn compute(&self, part: Expr, schema: &DFSchema) -> Result<Transformed<Expr>> {
        match part {
            Expr::ScalarFunction(call) => self.rewrite_call(call, schema),
            Expr::BinaryExpr(operation) => self.rewrite_operation(operation, schema),
            other => Ok(Transformed::no(other)),
        }
    }

    /// Returns the conversion of a value between two types, in the time zone of the session where
    /// neither type has another zone. Returns `None` if a cast says the same.
    fn convert(
        &self,
        value: &Expr,
        from: &DataType,
        to: &DataType,
        conversion: Conversion,
    ) -> Option<Expr> {
        let value = || value.clone();
        match (from, to) {
            (DataType::Timestamp(unit, Some(zone)), _) if is_local(to) => {
                let zone = self.effective(zone);
                if is_utc(&zone) {
                    return None;
                }
                let zoned = relabelled(value(), from, *unit, &zone);
                let local = if to.is_string() {
                    zoned
                } else {
                    to_local_time(vec![zoned])
                };
                Some(conversion.of(local, to))
            }
            (_, DataType::Timestamp(unit, Some(zone))) if is_local(from) => {
                let zone = self.effective(zone);
                if is_utc(&zone) {
                    return None;
                }
                // Arrow reads a date as midnight in UTC, whatever the zone of the other type.
                let value = if from.is_string() || matches!(from, DataType::Timestamp(_, None)) {
                    value()
                } else {
                    conversion.of(value(), &DataType::Timestamp(*unit, None))
                };
                let zoned = DataType::Timestamp(*unit, Some(zone));
                let read = conversion.of(value, &zoned);
                Some(if zoned == *to {
                    read
                } else {
                    cast(read, to.clone())
                })
            }
            _ => None,
        }
    }

    /// Returns the zone in which values of a type with this zone are read and written.
    fn effective(&self, of_type: &Arc<str>) -> Arc<str> {
        if **of_type == *UTC {
            Arc::clone(&self.0)
        } else {
            Arc::clone(of_type)
        }
    }

    fn rewrite_call(
        &self,
        mut call: ScalarFunction,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let name = call.func.name();
        if name == "to_unixtime" {
            return self.rewrite_to_unixtime(call, schema);
        }
        if is_utc(&self.0) {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        }
        if TO_TIMESTAMP.contains(&name) {
            return self.rewrite_to_timestamp(call, schema);
        }
        if name == "to_time" {
            return self.rewrite_to_time(call, schema);
        }
        if !OF_LOCAL_TIME.contains(&name) {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        }
        let returned = Expr::ScalarFunction(call.clone()).get_type(schema)?;
        let mut changed = false;
        for argument in &mut call.args {
            let data_type = argument.get_type(schema)?;
            if let DataType::Timestamp(unit, Some(_)) = &data_type
                && is_instant(&data_type)
            {
                let value = std::mem::take(argument);
                *argument = relabelled(value, &data_type, *unit, &self.0);
                changed = true;
            }
        }
        let call = Expr::ScalarFunction(call);
        if !changed {
            return Ok(Transformed::no(call));
        }
        Ok(Transformed::yes(if call.get_type(schema)? == returned {
            call
        } else {
            cast(call, returned)
        }))
    }

    /// Returns a call of `to_timestamp` that reads texts, dates and times without a zone in the
    /// time zone of the session.
    fn rewrite_to_timestamp(
        &self,
        call: ScalarFunction,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let Some(first) = call.args.first() else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let from = first.get_type(schema)?;
        if from.is_string() {
            let read = self.read_texts(call.func.name(), call.args)?;
            return Ok(Transformed::yes(read));
        }
        if is_local(&from) {
            let to = Expr::ScalarFunction(call.clone()).get_type(schema)?;
            if let Some(read) = self.convert(first, &from, &to, Conversion::Cast) {
                return Ok(Transformed::yes(read));
            }
        }
        Ok(Transformed::no(Expr::ScalarFunction(call)))
    }

    /// Returns a call of `to_unixtime` that reads texts in the time zone of the session.
    fn rewrite_to_unixtime(
        &self,
        mut call: ScalarFunction,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        match call.args.first() {
            Some(first) if first.get_type(schema)?.is_string() => {
                call.args = vec![self.read_texts("to_timestamp_seconds", call.args)?];
                Ok(Transformed::yes(Expr::ScalarFunction(call)))
            }
            _ => Ok(Transformed::no(Expr::ScalarFunction(call))),
        }
    }

    /// Returns a call of `to_time` that returns the time of day of an instant in the time zone of
    /// the session.
    fn rewrite_to_time(
        &self,
        mut call: ScalarFunction,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        let Some(first) = call.args.first_mut() else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let from = first.get_type(schema)?;
        let DataType::Timestamp(unit, Some(zone)) = &from else {
            return Ok(Transformed::no(Expr::ScalarFunction(call)));
        };
        let zoned = relabelled(std::mem::take(first), &from, *unit, &self.effective(zone));
        *first = to_local_time(vec![zoned]);
        Ok(Transformed::yes(Expr::ScalarFunction(call)))
    }

    /// Returns a call of the variant of `function` that takes the time zone of the session.
    fn read_texts(&self, function: &str, mut arguments: Vec<Expr>) -> Result<Expr> {
        let name = instants::name_in_zone(function);
        let mut functions = instants::functions().into_iter();
        let Some(function) = functions.find(|other| other.name() == name) else {
            return internal_err!("there is no function {name}");
        };
        arguments.insert(0, lit(self.0.as_ref()));
        Ok(called(function, arguments))
    }

    /// Adds days and months to instants by the calendar of the session's time zone.
    fn rewrite_operation(
        &self,
        operation: BinaryExpr,
        schema: &DFSchema,
    ) -> Result<Transformed<Expr>> {
        if !is_sum(operation.op) || is_utc(&self.0) {
            return Ok(Transformed::no(Expr::BinaryExpr(operation)));
        }
        let BinaryExpr { left, op, right } = operation;
        let (of_left, of_right) = (left.get_type(schema)?, right.get_type(schema)?);
        let is_interval = |side: &DataType| matches!(side, DataType::Interval(_));
        let (time, interval, returned) = match (&of_left, &of_right) {
            (DataType::Timestamp(unit, _), interval)
                if is_instant(&of_left) && is_interval(interval) =>
            {
                let left = relabelled(*left, &of_left, *unit, &self.0);
                (left, *right, of_left)
            }
            (interval, DataType::Timestamp(unit, _))
                if op == Operator::Plus && is_instant(&of_right) && is_interval(interval) =>
            {
                let right = relabelled(*right, &of_right, *unit, &self.0);
                (right, *left, of_right)
            }
            _ => {
                return Ok(Transformed::no(Expr::BinaryExpr(BinaryExpr {
                    left,
                    op,
                    right,
                })));
            }
        };
        // What is shorter than a day does not depend on the zone.
        let is_short = matches!(
            &interval,
            Expr::Literal(ScalarValue::IntervalMonthDayNano(Some(it)), _)
                if it.months == 0 && it.days == 0
        );
        let sum = if is_short {
            Expr::BinaryExpr(BinaryExpr::new(Box::new(time), op, Box::new(interval)))
        } else {
            zoned_sum(time, interval, op == Operator::Minus)
        };
        Ok(Transformed::yes(cast(sum, returned)))
    }

    /// Returns the plan of a query with the time zone of the session in the types of its columns.
    /// Other plans are returned unchanged.
    fn show_result(&self, plan: LogicalPlan) -> Result<LogicalPlan> {
        if is_utc(&self.0) {
            return Ok(plan);
        }
        match plan {
            LogicalPlan::Explain(_) | LogicalPlan::Analyze(_) => {
                let shown =
                    plan.map_children(|query| self.show_result(query).map(Transformed::yes))?;
                Ok(shown.data)
            }
            LogicalPlan::Dml(_)
            | LogicalPlan::Ddl(_)
            | LogicalPlan::Copy(_)
            | LogicalPlan::Statement(_)
            | LogicalPlan::DescribeTable(_) => Ok(plan),
            query => self.show_columns(query),
        }
    }

    fn show_columns(&self, query: LogicalPlan) -> Result<LogicalPlan> {
        let mut columns = Vec::with_capacity(query.schema().fields().len());
        let mut changed = false;
        for (qualifier, field) in query.schema().iter() {
            let column = Expr::Column(Column::new(qualifier.cloned(), field.name()));
            columns.push(match field.data_type() {
                instant @ DataType::Timestamp(unit, _) if is_instant(instant) => {
                    changed = true;
                    let shown = relabelled(column, instant, *unit, &self.0);
                    shown.alias_qualified(qualifier.cloned(), field.name())
                }
                _ => column,
            });
        }
        if !changed {
            return Ok(query);
        }
        LogicalPlanBuilder::from(query).project(columns)?.build()
    }
}

fn is_sum(operator: Operator) -> bool {
    matches!(operator, Operator::Plus | Operator::Minus)
}

/// How a value is converted.
#[derive(Debug, Clone, Copy)]
enum Conversion {
    /// A value that does not fit is an error.
    Cast,
    /// A value that does not fit becomes NULL.
    TryCast,
}

impl Conversion {
    fn of(self, value: Expr, to: &DataType) -> Expr {
        match self {
            Self::Cast => cast(value, to.clone()),
            Self::TryCast => try_cast(value, to.clone()),
        }
    }
}

/// Refuses the type of a time zone that does not exist.
fn check_zone(data_type: &DataType) -> Result<()> {
    match data_type {
        DataType::Timestamp(_, Some(zone)) if zone.parse::<Tz>().is_err() => plan_err!(
            "there is no time zone \"{zone}\"; write a name such as Europe/Berlin, or an offset such as +02:00"
        ),
        _ => Ok(()),
    }
}

/// Returns the instant with another zone in its type. The value stays the same.
fn relabelled(instant: Expr, from: &DataType, unit: TimeUnit, zone: &Arc<str>) -> Expr {
    let zoned = DataType::Timestamp(unit, Some(Arc::clone(zone)));
    if zoned == *from {
        instant
    } else {
        cast(instant, zoned)
    }
}

fn called(function: Arc<ScalarUDF>, arguments: Vec<Expr>) -> Expr {
    Expr::ScalarFunction(ScalarFunction::new_udf(function, arguments))
}
