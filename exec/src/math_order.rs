//! DataFusion 55 fails to tell the order of `sqrt(x)` if `x` may be outside of the function's
//! domain. It then takes rows that are sorted by `sqrt(x)` for unsorted, and refuses the plan that
//! has sorted them.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::Result;
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// Returns the functions that have no value for some numbers. Their values have no known order
/// where DataFusion fails to tell it.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 9] {
    [
        math::acos(),
        math::acosh(),
        math::asin(),
        math::atanh(),
        math::ln(),
        math::log(),
        math::log10(),
        math::log2(),
        math::sqrt(),
    ]
    .map(|function| Arc::new(ScalarUDF::from(PartialFunction(function))))
}

/// The function of DataFusion, which is asked for everything.
#[derive(Debug, PartialEq, Eq, Hash)]
struct PartialFunction(Arc<ScalarUDF>);

impl ScalarUDFImpl for PartialFunction {
    fn name(&self) -> &str {
        self.0.name()
    }

    fn aliases(&self) -> &[String] {
        self.0.aliases()
    }

    fn signature(&self) -> &Signature {
        self.0.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.0.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.0.return_field_from_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.0.inner().coerce_types(arg_types)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.0.simplify(args, info)
    }

    fn is_strict(&self) -> bool {
        self.0.inner().is_strict()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        self.0.evaluate_bounds(inputs)
    }

    fn propagate_constraints(
        &self,
        interval: &Interval,
        inputs: &[&Interval],
    ) -> Result<Option<Vec<Interval>>> {
        self.0.propagate_constraints(interval, inputs)
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        let ordering = self.0.output_ordering(inputs);
        Ok(ordering.unwrap_or(SortProperties::Unordered))
    }

    fn preserves_lex_ordering(&self, inputs: &[ExprProperties]) -> Result<bool> {
        self.0.preserves_lex_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.0.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.0.invoke_with_args(args)
    }
}
