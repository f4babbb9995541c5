//! DataFusion tells the type of a parameter that is compared or computed with. This module tells
//! it for parameters in other places, so that clients are told it and values are cast to it.

use std::collections::HashMap;
use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field};
use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::common::{DFSchema, ExprSchema};
use datafusion::error::Result as DfResult;
use datafusion::logical_expr::expr::{Alias, Case, ScalarFunction};
use datafusion::logical_expr::type_coercion::functions::fields_with_udf;
use datafusion::logical_expr::utils::merge_schema;
use datafusion::logical_expr::{BinaryExpr, Cast, Expr, ExprSchemable, LogicalPlan};

/// Functions whose arguments all have one type.
const OF_ONE_TYPE: [&str; 6] = ["coalesce", "nullif", "ifnull", "nvl", "greatest", "least"];

/// Returns the types of parameters by their names, as far as their places tell them:
///
/// - A value that is inserted has the type of its column.
/// - LIMIT and OFFSET take a BIGINT, and conditions a BOOLEAN.
/// - CAST takes the type to which it casts, as the SQL standard says.
/// - The branches of a CASE and the arguments of `coalesce` and the like have one type, and so have
///   the fields of two rows that are compared.
/// - Other functions take what their signatures say, if that is a text, an integer or a BOOLEAN.
pub(super) fn types_by_place(plan: &LogicalPlan) -> DfResult<HashMap<String, DataType>> {
    let mut places = Places::default();
    plan.apply_with_subqueries(|node| {
        match node {
            LogicalPlan::Limit(limit) => {
                for rows in [&limit.skip, &limit.fetch].into_iter().flatten() {
                    places.note(rows, &DataType::Int64);
                }
            }
            LogicalPlan::Dml(dml) => {
                let fields = dml.input.schema().fields().iter();
                let types = fields
                    .map(|field| Some(field.data_type().clone()))
                    .collect();
                places.note_inserted(&dml.input, types);
            }
            LogicalPlan::Filter(filter) => places.note(&filter.predicate, &DataType::Boolean),
            _ => {}
        }
        let schema = merge_schema(&node.inputs());
        node.apply_expressions(|expression| {
            expression.apply(|part| {
                places.look_into(part, &schema)?;
                Ok(TreeNodeRecursion::Continue)
            })
        })
    })?;
    Ok(places.0)
}

#[derive(Default)]
struct Places(HashMap<String, DataType>);

impl Places {
    /// Notes the type of an expression, if it is a parameter whose type is not known yet.
    fn note(&mut self, expression: &Expr, data_type: &DataType) {
        if let Expr::Placeholder(parameter) = expression
            && parameter.field.is_none()
            && !data_type.is_null()
        {
            let name = parameter.id.clone();
            self.0.entry(name).or_insert_with(|| data_type.clone());
        }
    }

    /// Notes the types of columns that become those of a table. `types` has the type that each
    /// column of `rows` is cast to.
    fn note_inserted(&mut self, rows: &LogicalPlan, types: Vec<Option<DataType>>) {
        match rows {
            LogicalPlan::SubqueryAlias(alias) => self.note_inserted(&alias.input, types),
            LogicalPlan::Projection(projection) => {
                let input = projection.input.schema();
                let mut below = vec![None; input.fields().len()];
                for (expression, data_type) in projection.expr.iter().zip(types) {
                    let Some(data_type) = data_type else { continue };
                    let mut expression = expression;
                    while let Expr::Alias(Alias { expr, .. }) | Expr::Cast(Cast { expr, .. }) =
                        expression
                    {
                        expression = expr;
                    }
                    if let Expr::Column(column) = expression
                        && let Some(position) = input.maybe_index_of_column(column)
                    {
                        below[position] = Some(data_type);
                    } else {
                        self.note(expression, &data_type);
                    }
                }
                self.note_inserted(&projection.input, below);
            }
            _ => {}
        }
    }

    fn look_into(&mut self, part: &Expr, schema: &DFSchema) -> DfResult<()> {
        match part {
            // TRY_CAST takes values of other types, too, and returns NULL for them.
            Expr::Cast(Cast { expr, field }) => self.note(expr, field.data_type()),
            Expr::Not(inner) => self.note(inner, &DataType::Boolean),
            Expr::Case(Case {
                expr,
                when_then_expr,
                else_expr,
            }) => {
                let conditions = when_then_expr.iter().map(|(when, _)| when.as_ref());
                match expr {
                    Some(expr) => self.note_same(conditions.chain([expr.as_ref()]), schema),
                    None => conditions.for_each(|when| self.note(when, &DataType::Boolean)),
                }
                let results = when_then_expr.iter().map(|(_, then)| then.as_ref());
                self.note_same(results.chain(else_expr.as_deref()), schema);
            }
            Expr::ScalarFunction(call) if OF_ONE_TYPE.contains(&call.func.name()) => {
                self.note_same(call.args.iter(), schema);
            }
            Expr::ScalarFunction(call) => self.note_by_signature(call, schema),
            Expr::BinaryExpr(BinaryExpr { left, right, .. }) => {
                if let (Expr::ScalarFunction(left), Expr::ScalarFunction(right)) =
                    (left.as_ref(), right.as_ref())
                    && left.func.name() == "struct"
                    && right.func.name() == "struct"
                {
                    for (left, right) in left.args.iter().zip(&right.args) {
                        self.note_same([left, right].into_iter(), schema);
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Notes for each parameter among the expressions the type of the first other one.
    fn note_same<'a>(
        &mut self,
        expressions: impl Iterator<Item = &'a Expr> + Clone,
        schema: &dyn ExprSchema,
    ) {
        let mut others = expressions
            .clone()
            .filter(|expression| !is_parameter(expression));
        let known = others.find_map(|other| match other.get_type(schema) {
            Ok(data_type) if !data_type.is_null() => Some(data_type),
            _ => None,
        });
        if let Some(data_type) = known {
            for expression in expressions {
                self.note(expression, &data_type);
            }
        }
    }

    fn note_by_signature(&mut self, call: &ScalarFunction, schema: &dyn ExprSchema) {
        if !call.args.iter().any(is_parameter) {
            return;
        }
        let given = call.args.iter().map(|argument| {
            if is_parameter(argument) {
                Ok(Arc::new(Field::new("", DataType::Null, true)))
            } else {
                argument.to_field(schema).map(|(_, field)| field)
            }
        });
        let Ok(given) = given.collect::<DfResult<Vec<_>>>() else {
            return;
        };
        let Ok(taken) = fields_with_udf(&given, call.func.as_ref()) else {
            return;
        };
        for (argument, field) in call.args.iter().zip(&taken) {
            let data_type = field.data_type();
            let is_plain =
                data_type.is_string() || matches!(data_type, DataType::Int64 | DataType::Boolean);
            if is_plain {
                self.note(argument, data_type);
            }
        }
    }
}

fn is_parameter(expression: &Expr) -> bool {
    matches!(expression, Expr::Placeholder(_))
}
