//! The type of `struct(a, a)` has twice the fields of `a`. A statement may have thirty such steps,
//! each of which doubles the type of the step before. The last type then has a billion fields. The
//! type is small in memory, because its parts are shared, but the planner walks over all of it at
//! each step. So a type may have only as many fields as a table.

use std::collections::HashMap;
use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DFSchema, Result, ScalarValue, plan_err};
use datafusion::functions::core::planner::CoreFunctionPlanner;
use datafusion::functions_nested::planner::NestedFunctionPlanner;
use datafusion::logical_expr::expr::ScalarFunction;
use datafusion::logical_expr::planner::{ExprPlanner, PlannerResult, RawDictionaryExpr};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, StructFieldMapping,
};

use crate::sql::shape::count_fields;

/// The names of the functions that build nested types.
const FUNCTION_NAMES: [&str; 4] = ["struct", "named_struct", "map", "arrays_zip"];

/// Returns those of the given functions that build nested types. The returned functions refuse to
/// make a type of more than `max_fields` fields.
pub(super) fn bounded_functions<'a>(
    functions: impl IntoIterator<Item = &'a Arc<ScalarUDF>>,
    max_fields: usize,
) -> Vec<Arc<ScalarUDF>> {
    let making = functions
        .into_iter()
        .filter(|function| FUNCTION_NAMES.contains(&function.name()));
    let bounded = making.map(|function| BoundedTypeBuilder {
        function: Arc::clone(function),
        max_fields,
    });
    bounded
        .map(|function| Arc::new(ScalarUDF::from(function)))
        .collect()
}

/// A function that builds a type from the types of its arguments.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BoundedTypeBuilder {
    function: Arc<ScalarUDF>,
    max_fields: usize,
}

// The missing methods have defaults, which are right for these functions.
impl ScalarUDFImpl for BoundedTypeBuilder {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        let field = self.function.return_field_from_args(args)?;
        if count_fields(field.data_type(), self.max_fields) > self.max_fields {
            return plan_err!(
                "the type that {}(…) returns would have more than {} fields, counting the fields of its arguments, which is the limit of gateway.query.max_columns; split the value into several columns, or into a row for each part",
                self.name(),
                self.max_fields
            );
        }
        Ok(field)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(args)
    }

    fn struct_field_mapping(
        &self,
        literal_args: &[Option<ScalarValue>],
    ) -> Option<StructFieldMapping> {
        self.function.inner().struct_field_mapping(literal_args)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}

/// Plans `{a: 1}`, `MAP {1: 2}` and similar literals with the limited functions. DataFusion does
/// not look up functions by name for such literals, so registering the functions is not enough.
#[derive(Debug)]
pub(super) struct BoundedLiteralPlanner(HashMap<String, Arc<ScalarUDF>>);

impl BoundedLiteralPlanner {
    pub(super) fn of(functions: &[Arc<ScalarUDF>]) -> Self {
        let by_name = functions
            .iter()
            .map(|function| (function.name().to_owned(), Arc::clone(function)));
        Self(by_name.collect())
    }

    fn with_bounded_function<T>(&self, planned: PlannerResult<T>) -> PlannerResult<T> {
        match planned {
            PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction { func, args })) => {
                let func = self.0.get(func.name()).cloned().unwrap_or(func);
                PlannerResult::Planned(Expr::ScalarFunction(ScalarFunction { func, args }))
            }
            other => other,
        }
    }
}

impl ExprPlanner for BoundedLiteralPlanner {
    fn plan_dictionary_literal(
        &self,
        literal: RawDictionaryExpr,
        schema: &DFSchema,
    ) -> Result<PlannerResult<RawDictionaryExpr>> {
        let planned = CoreFunctionPlanner::default().plan_dictionary_literal(literal, schema)?;
        Ok(self.with_bounded_function(planned))
    }

    fn plan_struct_literal(
        &self,
        args: Vec<Expr>,
        is_named_struct: bool,
    ) -> Result<PlannerResult<Vec<Expr>>> {
        let planned = CoreFunctionPlanner::default().plan_struct_literal(args, is_named_struct)?;
        Ok(self.with_bounded_function(planned))
    }

    fn plan_make_map(&self, args: Vec<Expr>) -> Result<PlannerResult<Vec<Expr>>> {
        Ok(self.with_bounded_function(NestedFunctionPlanner.plan_make_map(args)?))
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::{FunctionRegistry, SessionStateBuilder, SessionStateDefaults};
    use datafusion::prelude::SessionContext;

    use super::*;

    fn context(max_fields: usize) -> SessionContext {
        let functions = bounded_functions(
            &SessionStateDefaults::default_scalar_functions(),
            max_fields,
        );
        assert_eq!(functions.len(), FUNCTION_NAMES.len());
        let mut state = SessionStateBuilder::new()
            .with_expr_planners(vec![Arc::new(BoundedLiteralPlanner::of(&functions))])
            .with_default_features()
            .build();
        for function in functions {
            state.register_udf(function).unwrap();
        }
        SessionContext::new_with_state(state)
    }

    /// Returns a statement of this number of steps. Each step makes the expression `made` of `a`,
    /// the column of the step before.
    fn steps(made: &str, steps: usize) -> String {
        let steps = (1..=steps)
            .map(|step| format!("s{step} AS (SELECT {made} AS a FROM s{})", step - 1))
            .collect::<Vec<_>>();
        format!(
            "WITH s0 AS (SELECT 1 AS a), {} SELECT 1 FROM s{}",
            steps.join(", "),
            steps.len()
        )
    }

    #[tokio::test]
    async fn types_that_double_are_refused() {
        let context = context(100);
        for made in [
            "struct(a, a)",
            "row(a, a)",
            "named_struct('x', a, 'y', a)",
            "STRUCT(a AS x, a AS y)",
            "{'x': a, 'y': a}",
            "map([a], [a])",
            "MAP {a: a}",
            "arrays_zip([a], [a])",
        ] {
            let sql = steps(made, 40);
            let error = context.sql(&sql).await.unwrap_err().to_string();
            assert!(error.contains("more than 100 fields"), "{made}: {error}");
        }
    }

    #[tokio::test]
    async fn types_of_few_fields_are_made() {
        let context = context(100);
        for made in ["struct(a, a)", "{'x': a, 'y': a}", "arrays_zip([a], [a])"] {
            let rows = context.sql(&steps(made, 3)).await.unwrap().collect().await;
            assert_eq!(rows.unwrap()[0].num_rows(), 1, "{made}");
        }
        let rows = context.sql("SELECT get_field({'x': 7}, 'x') AS x").await;
        let rows = rows.unwrap().collect().await.unwrap();
        assert_eq!(rows[0].num_rows(), 1);
    }
}
