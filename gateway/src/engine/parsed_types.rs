//! Arrow's parser of types calls itself for each level. A text of some kilobytes overflows the
//! stack, which ends the process. So the levels are counted before the parser sees the text.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{Result, ScalarValue, plan_err};
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

/// The names of the functions that read a type from a text.
const FUNCTION_NAMES: [&str; 2] = ["arrow_cast", "arrow_try_cast"];

/// Returns those of the given functions that read a type from a text. The returned functions refuse
/// types of more than `max_depth` levels.
pub(super) fn bounded_functions<'a>(
    functions: impl IntoIterator<Item = &'a Arc<ScalarUDF>>,
    max_depth: usize,
) -> Vec<Arc<ScalarUDF>> {
    let reading = functions
        .into_iter()
        .filter(|function| FUNCTION_NAMES.contains(&function.name()));
    let bounded = reading.map(|function| BoundedTypeParser {
        function: Arc::clone(function),
        max_depth,
    });
    bounded
        .map(|function| Arc::new(ScalarUDF::from(function)))
        .collect()
}

/// A function that reads a type from the text of its second argument.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct BoundedTypeParser {
    function: Arc<ScalarUDF>,
    max_depth: usize,
}

impl BoundedTypeParser {
    fn check(&self, text: &ScalarValue) -> Result<()> {
        let text = text.try_as_str().flatten().unwrap_or_default();
        let depth = 1 + depth(text);
        if depth > self.max_depth {
            return plan_err!(
                "the type in {}(…) is nested too deeply: it has {depth} levels, but gateway.query.max_type_depth allows {}; use a flatter type",
                self.name(),
                self.max_depth
            );
        }
        Ok(())
    }
}

/// Returns how deeply the parentheses of the text are nested. Parentheses in the quoted names of
/// fields do not count, because a name could close as many as other parts open. A quoted name ends
/// where Arrow's parser ends it: the first quote after a backslash does not end the name.
fn depth(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    let (mut quote, mut is_escaped) = (None, false);
    for byte in text.bytes() {
        match (quote, byte) {
            (None, b'(') => open += 1,
            (None, b')') => open = open.saturating_sub(1),
            (None, b'"' | b'\'') => (quote, is_escaped) = (Some(byte), false),
            (Some(_), b'\\') => is_escaped = true,
            (Some(begun), _) if begun == byte && is_escaped => is_escaped = false,
            (Some(begun), _) if begun == byte => quote = None,
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

impl ScalarUDFImpl for BoundedTypeParser {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        if let Some(Some(text)) = args.scalar_arguments.get(1) {
            self.check(text)?;
        }
        self.function.return_field_from_args(args)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        self.function.invoke_with_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        if let Some(Expr::Literal(text, _)) = args.get(1) {
            self.check(text)?;
        }
        self.function.simplify(args, info)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}

#[cfg(test)]
mod tests {
    use datafusion::execution::SessionStateDefaults;
    use datafusion::prelude::SessionContext;

    use super::*;

    #[tokio::test]
    async fn types_of_few_levels_are_read_and_deep_ones_are_refused() {
        let context = SessionContext::new();
        let functions = bounded_functions(&SessionStateDefaults::default_scalar_functions(), 3);
        assert_eq!(functions.len(), FUNCTION_NAMES.len());
        for function in functions {
            context.register_udf(ScalarUDF::clone(&function));
        }
        for name in FUNCTION_NAMES {
            let sql = |depth: usize| {
                let (open, close) = ("List(".repeat(depth), ")".repeat(depth));
                format!("SELECT {name}(NULL, '{open}Int64{close}') AS made")
            };
            let run = async |sql: String| context.sql(&sql).await?.collect().await;
            run(sql(2)).await.unwrap();
            for depth in [3, 20_000] {
                let error = run(sql(depth)).await.unwrap_err().to_string();
                assert!(error.contains("nested too deeply"), "{error}");
            }
        }
    }

    #[test]
    fn parentheses_in_names_open_and_close_nothing() {
        assert_eq!(depth("Timestamp(ns, \"(((\")"), 1);
        for name in ["\")\"", "\"it's)\"", r#""\")""#, r#""\\")""#] {
            let text = format!("Struct({name}: ").repeat(4);
            assert_eq!(depth(&text), 4, "{text}");
        }
    }
}
