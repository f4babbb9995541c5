use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, exec_err, plan_err};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};

/// The operators that become functions, and the names of the functions. A negated operator becomes
/// the negation of one of these functions.
const FUNCTIONS: [(Operator, &str); 4] = [
    (Operator::RegexMatch, "regex_match"),
    (Operator::RegexIMatch, "regex_imatch"),
    (Operator::LikeMatch, "like_match"),
    (Operator::ILikeMatch, "ilike_match"),
];

/// Returns the functions of all these operators.
pub(super) fn functions() -> impl Iterator<Item = TextMatch> {
    let functions = FUNCTIONS.into_iter();
    functions.map(|(operator, name)| TextMatch {
        operator,
        name,
        signature: Signature::user_defined(Volatility::Immutable),
    })
}

/// Returns the name of an operator's function, or `None` for an operator without a function.
pub(super) fn name(operator: Operator) -> Option<&'static str> {
    let mut functions = FUNCTIONS.into_iter();
    let function = functions.find(|(replaced, _)| *replaced == operator);
    function.map(|(_, name)| name)
}

/// A function that returns whether a text matches a pattern, or NULL if one of them is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextMatch {
    operator: Operator,
    name: &'static str,
    signature: Signature,
}

fn is_text(data_type: &DataType) -> bool {
    match data_type {
        DataType::Dictionary(_, values) => is_text(values),
        other => other.is_string() || other.is_binary() || other.is_null(),
    }
}

impl ScalarUDFImpl for TextMatch {
    fn name(&self) -> &'static str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        // The planner has made the types of the operands equal, unless a statement calls the
        // function by its name.
        if arg_types.len() != 2 || !arg_types.iter().all(is_text) {
            return plan_err!("{} takes a text and a pattern", self.name);
        }
        Ok(arg_types.to_vec())
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Boolean)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (mut fields, mut columns) = (Vec::new(), Vec::new());
        let operands = args.args.into_iter().map(|value| match value {
            ColumnarValue::Scalar(value) => Arc::new(Literal::new(value)) as Arc<dyn PhysicalExpr>,
            ColumnarValue::Array(values) => {
                let position = columns.len();
                let name = position.to_string();
                fields.push(Field::new(&name, values.data_type().clone(), true));
                columns.push(values);
                Arc::new(Column::new(&name, position))
            }
        });
        let operands: Vec<_> = operands.collect();
        let [text, pattern] = operands.as_slice() else {
            return exec_err!("{}(…) takes a text and a pattern", self.name());
        };
        let matches = BinaryExpr::new(Arc::clone(text), self.operator, Arc::clone(pattern));
        let rows = RecordBatchOptions::new().with_row_count(Some(args.number_rows));
        let schema = Arc::new(Schema::new(fields));
        matches.evaluate(&RecordBatch::try_new_with_options(schema, columns, &rows)?)
    }
}
