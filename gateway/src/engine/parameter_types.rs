//! DataFusion infers the type of a parameter that is compared or computed with. This module infers
//! it for parameters in other places. Clients are told the types, and values are cast to them.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, TimeUnit};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{Column, DFSchema, ScalarValue};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{
    Alias, Between, Case, InList, Like, Placeholder, ScalarFunction, WindowFunction,
};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan, Operator};

/// Functions whose arguments all have one type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "nullif", "ifnull", "nvl", "greatest", "least"];

/// Functions of times, and the position of the time among the arguments. They also take texts, so
/// their signatures do not say that a time is meant.
const OF_TIMES: [(&str, usize); 4] = [
    ("date_bin", 1),
    ("date_part", 1),
    ("date_trunc", 1),
    ("to_char", 0),
];

/// The type of a parameter.
#[derive(Debug, Clone)]
pub(super) struct ParameterType {
    pub(super) data_type: DataType,
    /// Says whether the place of the parameter takes any type. A value of another type is then kept
    /// as it is.
    pub(super) is_guess: bool,
}

/// Returns the types of all parameters by their names. The type is `None` if it cannot be inferred
/// from any place of the parameter.
///
/// DataFusion has inferred the types of those that are compared or computed with. The others have:
///
/// - A value that is inserted: the type of its column.
/// - LIMIT and OFFSET: BIGINT. Conditions: BOOLEAN.
/// - A column of a UNION: the type of the other branches.
/// - CAST: the type to which it casts, as the SQL standard says.
/// - The branches of a CASE, the arguments of `coalesce` and the like, the operands of a
///   comparison, and the fields of two rows that are compared: the type of the others, or that of
///   the place of the whole expression.
/// - A column of VALUES: the type of the places where the column is used.
/// - Arguments of other functions: the types in their signatures. Positions in window functions:
///   BIGINT.
/// - `? IS NULL`: the type of the parameter next to it, as in `? IS NULL OR k = ?`.
pub(super) fn types_of_parameters(
    plan: &LogicalPlan,
) -> DfResult<HashMap<String, Option<ParameterType>>> {
    let mut places = Places::default();
    let mut names = Vec::new();
    let mut is_any_unknown = false;
    plan.apply_with_subqueries(|node| {
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                if let Expr::Placeholder(parameter) = part {
                    names.push(parameter.id.clone());
                    match own_type(parameter) {
                        Some(data_type) => places.add(&parameter.id, data_type),
                        None => is_any_unknown = true,
                    }
                }
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    if is_any_unknown {
        plan.apply_with_subqueries(|node| {
            places.look_into_node(node)?;
            Ok(TreeNodeRecursion::Continue)
        })?;
        // The types of the neighbours are known by now.
        plan.apply_with_subqueries(|node| {
            node.apply_expressions(|expression| {
                expression.apply(|part| {
                    places.guess_of_null_tests(part)?;
                    Ok(TreeNodeRecursion::Continue)
                })
            })
        })?;
    }
    let types = names.into_iter().map(|name| {
        let data_type = places.0.get(&name).cloned();
        (name, data_type)
    });
    Ok(types.collect())
}

/// Returns the type that DataFusion has inferred for a parameter.
fn own_type(parameter: &Placeholder) -> Option<&DataType> {
    let field = parameter.field.as_ref()?;
    // Two parameters that are compared with each other have this type.
    (!field.data_type().is_null()).then(|| field.data_type())
}

/// The types that are known so far, by the names of the parameters. The first place of a parameter
/// counts.
#[derive(Default)]
struct Places(HashMap<String, ParameterType>);

impl Places {
    fn add(&mut self, name: &str, data_type: &DataType) {
        if !data_type.is_null() && !self.0.contains_key(name) {
            let found = ParameterType {
                data_type: data_type.clone(),
                is_guess: false,
            };
            self.0.insert(name.to_owned(), found);
        }
    }

    /// Notes the type of an expression, if it is a parameter whose type is not known yet.
    fn note(&mut self, expression: &Expr, data_type: &DataType) {
        if let Expr::Placeholder(parameter) = expression
            && own_type(parameter).is_none()
        {
            self.add(&parameter.id, data_type);
        }
    }

    fn look_into_node(&mut self, node: &LogicalPlan) -> DfResult<()> {
        match node {
            LogicalPlan::Limit(limit) => {
                for rows in [&limit.skip, &limit.fetch].into_iter().flatten() {
                    self.note(rows, &DataType::Int64);
                }
            }
            LogicalPlan::Dml(dml) => {
                for (position, field) in dml.input.schema().fields().iter().enumerate() {
                    self.expect_column(&dml.input, position, field.data_type());
                }
            }
            LogicalPlan::Union(union) => {
                for position in 0..union.schema.fields().len() {
                    let types = union.inputs.iter().map(|branch| {
                        let field = branch.schema().fields().get(position)?;
                        let data_type = field.data_type();
                        (!data_type.is_null()).then(|| data_type.clone())
                    });
                    if let Some(known) = types.into_iter().flatten().next() {
                        for branch in &union.inputs {
                            self.expect_column(branch, position, &known);
                        }
                    }
                }
            }
            _ => {}
        }
        let scope = Scope::of(node);
        if let LogicalPlan::Filter(filter) = node {
            self.expect(&filter.predicate, &DataType::Boolean, &scope);
        }
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                self.look_into(part, &scope);
                Ok(TreeNodeRecursion::Continue)
            })
        })?;
        Ok(())
    }

    /// Notes the type of a column that is written to a table or compared, if it comes from
    /// parameters.
    fn expect_column(&mut self, rows: &LogicalPlan, position: usize, data_type: &DataType) {
        match rows {
            LogicalPlan::SubqueryAlias(alias) => {
                self.expect_column(&alias.input, position, data_type);
            }
            LogicalPlan::Filter(filter) => self.expect_column(&filter.input, position, data_type),
            LogicalPlan::Sort(sort) => self.expect_column(&sort.input, position, data_type),
            LogicalPlan::Limit(limit) => self.expect_column(&limit.input, position, data_type),
            LogicalPlan::Distinct(distinct) => {
                self.expect_column(distinct.input(), position, data_type);
            }
            LogicalPlan::Union(union) => {
                for branch in &union.inputs {
                    self.expect_column(branch, position, data_type);
                }
            }
            LogicalPlan::Projection(projection) => {
                if let Some(expression) = projection.expr.get(position) {
                    self.expect(without_casts(expression), data_type, &Scope::of(rows));
                }
            }
            LogicalPlan::Values(values) => {
                let scope = Scope::of(rows);
                for row in &values.values {
                    if let Some(value) = row.get(position) {
                        self.expect(without_casts(value), data_type, &scope);
                    }
                }
            }
            _ => {}
        }
    }

    /// Notes the types of the parameters that decide the type of an expression. `data_type` is the
    /// type that the place of the expression wants.
    fn expect(&mut self, expression: &Expr, data_type: &DataType, scope: &Scope<'_>) {
        match expression {
            Expr::Placeholder(_) => self.note(expression, data_type),
            Expr::Alias(alias) => self.expect(&alias.expr, data_type, scope),
            Expr::Negative(inner) => self.expect(inner, data_type, scope),
            _ if !scope.is_unknown(expression) => {}
            Expr::Case(case) => {
                for result in results(case) {
                    self.expect(result, data_type, scope);
                }
            }
            Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
                for argument in &call.args {
                    self.expect(argument, data_type, scope);
                }
            }
            Expr::ScalarSubquery(subquery) => {
                self.expect_column(&subquery.subquery, 0, data_type);
            }
            Expr::Column(column) => {
                for (rows, position) in scope.origins(column) {
                    self.expect_column(rows, position, data_type);
                }
            }
            _ => {}
        }
    }

    fn look_into(&mut self, part: &Expr, scope: &Scope<'_>) {
        match part {
            // TRY_CAST takes values of other types, too, and returns NULL for them.
            Expr::Cast(Cast { expr, field }) => self.expect(expr, field.data_type(), scope),
            Expr::Not(inner) | Expr::IsTrue(inner) | Expr::IsFalse(inner) => {
                self.expect(inner, &DataType::Boolean, scope);
            }
            Expr::Negative(inner) => self.note(inner, &DataType::Float64),
            Expr::Case(case) => {
                let conditions = case.when_then_expr.iter().map(|(when, _)| when.as_ref());
                match &case.expr {
                    Some(expr) => self.expect_same(conditions.chain([expr.as_ref()]), scope),
                    None => {
                        conditions.for_each(|when| self.expect(when, &DataType::Boolean, scope));
                    }
                }
                self.expect_same(results(case), scope);
            }
            Expr::Between(Between {
                expr, low, high, ..
            }) => self.expect_same([expr, low, high].into_iter().map(AsRef::as_ref), scope),
            Expr::InList(InList { expr, list, .. }) => {
                let fields = struct_fields(expr);
                for (position, field) in fields.into_iter().flatten().enumerate() {
                    let others = list
                        .iter()
                        .filter_map(|row| struct_fields(row)?.get(position));
                    self.expect_same([field].into_iter().chain(others), scope);
                }
                self.expect_same([expr.as_ref()].into_iter().chain(list), scope);
            }
            Expr::Like(Like { expr, pattern, .. })
            | Expr::SimilarTo(Like { expr, pattern, .. }) => {
                for text in [expr, pattern] {
                    self.expect(text, &DataType::Utf8View, scope);
                }
            }
            Expr::InSubquery(predicate) => {
                let columns = predicate.subquery.subquery.schema().fields();
                if let Some(column) = columns.first() {
                    self.expect(&predicate.expr, column.data_type(), scope);
                }
            }
            Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
                self.expect_same(call.args.iter(), scope);
            }
            Expr::ScalarFunction(call) => self.note_by_signature(call, scope),
            Expr::WindowFunction(call) => self.look_into_window(call, scope),
            Expr::BinaryExpr(BinaryExpr { left, op, right }) => {
                if let (Some(left), Some(right)) = (struct_fields(left), struct_fields(right)) {
                    for (left, right) in left.iter().zip(right) {
                        self.expect_same([left, right].into_iter(), scope);
                    }
                }
                match op {
                    Operator::And | Operator::Or => {
                        for condition in [left, right] {
                            self.expect(condition, &DataType::Boolean, scope);
                        }
                    }
                    _ if op.supports_propagation() => {
                        self.expect_same([left, right].into_iter().map(AsRef::as_ref), scope);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
    }

    fn look_into_window(&mut self, call: &WindowFunction, scope: &Scope<'_>) {
        let arguments = &call.params.args;
        match (call.fun.name(), arguments.as_slice()) {
            ("lag" | "lead", [value, offset, rest @ ..]) => {
                self.note(offset, &DataType::Int64);
                self.expect_same(std::iter::once(value).chain(rest), scope);
            }
            ("nth_value", [_, position, ..]) => self.note(position, &DataType::Int64),
            ("ntile", [buckets, ..]) => self.note(buckets, &DataType::Int64),
            _ => {}
        }
    }

    /// Expects of all the expressions the type of the first one whose type is known.
    fn expect_same<'a>(
        &mut self,
        expressions: impl Iterator<Item = &'a Expr> + Clone,
        scope: &Scope<'_>,
    ) {
        let known = expressions
            .clone()
            .find_map(|expression| self.known_type(expression, scope));
        if let Some(data_type) = known {
            for expression in expressions {
                self.expect(expression, &data_type, scope);
            }
        }
    }

    fn known_type(&self, expression: &Expr, scope: &Scope<'_>) -> Option<DataType> {
        if let Expr::Placeholder(parameter) = expression
            && own_type(parameter).is_none()
        {
            let found = self.0.get(&parameter.id);
            return found.map(|found| found.data_type.clone());
        }
        scope.type_of(expression)
    }

    fn note_by_signature(&mut self, call: &ScalarFunction, scope: &Scope<'_>) {
        if !call.args.iter().any(is_parameter) {
            return;
        }
        for (name, position) in OF_TIMES {
            if call.func.name() == name
                && let Some(time) = call.args.get(position)
            {
                self.note(time, &DataType::Timestamp(TimeUnit::Microsecond, None));
            }
        }
        if let ("round" | "trunc", Some(number)) = (call.func.name(), call.args.first()) {
            self.note(number, &DataType::Float64);
        }
        let given = call.args.iter().map(|argument| {
            if is_parameter(argument) {
                Some(Arc::new(Field::new("", DataType::Null, true)))
            } else {
                let field = argument.to_field(&scope.schema);
                field.ok().map(|(_, field)| field)
            }
        });
        let Some(given) = given.collect::<Option<Vec<_>>>() else {
            return;
        };
        let Ok(taken) = fields_with_udf(&given, call.func.as_ref()) else {
            return;
        };
        for (argument, field) in call.args.iter().zip(&taken) {
            if let Some(data_type) = announced(field.data_type()) {
                self.note(argument, &data_type);
            }
        }
    }

    /// Gives each parameter in `? IS NULL` the type of the nearest parameter that is joined to it
    /// by AND or OR.
    fn guess_of_null_tests(&mut self, part: &Expr) -> DfResult<()> {
        let Expr::BinaryExpr(BinaryExpr { op, .. }) = part else {
            return Ok(());
        };
        if !matches!(op, Operator::And | Operator::Or) {
            return Ok(());
        }
        let mut operands = Vec::new();
        flatten(part, *op, &mut operands);
        let tested = operands.iter().filter_map(|operand| {
            let (Expr::IsNull(tested) | Expr::IsNotNull(tested)) = operand else {
                return None;
            };
            match tested.as_ref() {
                Expr::Placeholder(tested) if !self.0.contains_key(&tested.id) => Some(tested),
                _ => None,
            }
        });
        let tested: Vec<_> = tested.collect();
        if tested.is_empty() {
            return Ok(());
        }
        // A chain of AND is visited again at each of its operators, so this must not look at each
        // pair of operands there.
        let mut known = Vec::new();
        for operand in &operands {
            operand.apply(|part| {
                if let Expr::Placeholder(parameter) = part
                    && let Some(found) = self.0.get(&parameter.id)
                {
                    known.push((parameter, found.data_type.clone()));
                }
                Ok(TreeNodeRecursion::Continue)
            })?;
        }
        for tested in tested {
            let near = known.iter().filter_map(|(parameter, data_type)| {
                let distance = distance(tested, parameter)?;
                Some((distance, data_type))
            });
            if let Some((_, data_type)) = near.min_by_key(|(distance, _)| *distance) {
                let guess = ParameterType {
                    data_type: data_type.clone(),
                    is_guess: true,
                };
                self.0.insert(tested.id.clone(), guess);
            }
        }
        Ok(())
    }
}

/// The columns that an expression may read.
struct Scope<'a> {
    schema: DFSchema,
    inputs: Vec<&'a LogicalPlan>,
}

impl<'a> Scope<'a> {
    fn of(node: &'a LogicalPlan) -> Self {
        let inputs = node.inputs();
        Self {
            schema: merge_schema(&inputs),
            inputs,
        }
    }

    fn type_of(&self, expression: &Expr) -> Option<DataType> {
        let data_type = expression.get_type(&self.schema).ok()?;
        (!data_type.is_null()).then_some(data_type)
    }

    /// Returns whether the parameters of an expression decide its type.
    fn is_unknown(&self, expression: &Expr) -> bool {
        !matches!(expression, Expr::Literal(ScalarValue::Null, _))
            && self.type_of(expression).is_none()
    }

    /// Returns the inputs that have a column, and its position in them.
    fn origins(&self, column: &Column) -> impl Iterator<Item = (&'a LogicalPlan, usize)> {
        self.inputs.iter().filter_map(|input| {
            let position = input.schema().maybe_index_of_column(column)?;
            Some((*input, position))
        })
    }
}

/// Returns the type that is announced for an argument of a function that takes `taken`.
fn announced(taken: &DataType) -> Option<DataType> {
    match taken {
        text if text.is_string() => Some(text.clone()),
        integer if integer.is_integer() => Some(DataType::Int64),
        number if number.is_numeric() => Some(DataType::Float64),
        DataType::Boolean | DataType::Date32 | DataType::Binary | DataType::BinaryView => {
            Some(taken.clone())
        }
        DataType::Timestamp(_, zone) => {
            Some(DataType::Timestamp(TimeUnit::Microsecond, zone.clone()))
        }
        _ => None,
    }
}

fn results(case: &Case) -> impl Iterator<Item = &Expr> + Clone {
    let results = case.when_then_expr.iter().map(|(_, then)| then.as_ref());
    results.chain(case.else_expr.as_deref())
}

/// Returns the fields of a row `(a, b)`, which the planner makes a struct.
fn struct_fields(row: &Expr) -> Option<&Vec<Expr>> {
    match row {
        Expr::ScalarFunction(call) if call.func.name() == "struct" => Some(&call.args),
        _ => None,
    }
}

/// Returns an expression without its name, and without the casts to the types of a table that the
/// planner adds.
fn without_casts(mut expression: &Expr) -> &Expr {
    while let Expr::Alias(Alias { expr, .. }) | Expr::Cast(Cast { expr, .. }) = expression {
        expression = expr;
    }
    expression
}

fn is_parameter(expression: &Expr) -> bool {
    matches!(expression, Expr::Placeholder(_))
}

/// Collects the operands of a chain of AND or OR.
fn flatten<'a>(expression: &'a Expr, chained: Operator, operands: &mut Vec<&'a Expr>) {
    match expression {
        Expr::BinaryExpr(BinaryExpr { left, op, right }) if *op == chained => {
            flatten(left, chained, operands);
            flatten(right, chained, operands);
        }
        other => operands.push(other),
    }
}

/// Returns how far two parameters are apart in the text of the statement. Of two at the same
/// distance, the later one is nearer.
fn distance(from: &Placeholder, to: &Placeholder) -> Option<usize> {
    let number = |parameter: &Placeholder| {
        let number = parameter.id.strip_prefix('$')?;
        number.parse::<usize>().ok()
    };
    let (from, to) = (number(from)?, number(to)?);
    Some(2 * from.abs_diff(to) + usize::from(to < from))
}
