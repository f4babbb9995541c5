//! Provides functions for the operators that search a text for a pattern: functions can have
//! limits, but operators cannot.

use std::sync::Arc;

use arrow::array::{RecordBatch, RecordBatchOptions};
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::common::{Result, exec_err};
use datafusion::logical_expr::{
    ColumnarValue, Operator, ScalarFunctionArgs, ScalarUDFImpl, Signature, Volatility,
};
use datafusion::physical_expr::PhysicalExpr;
use datafusion::physical_expr::expressions::{BinaryExpr, Column, Literal};

/// The operators that become functions. A negated operator becomes the negation of one of these
/// functions.
const OPERATORS: [Operator; 4] = [
    Operator::RegexMatch,
    Operator::RegexIMatch,
    Operator::LikeMatch,
    Operator::ILikeMatch,
];

/// Returns the functions of all these operators.
pub(super) fn functions() -> impl Iterator<Item = TextMatch> {
    OPERATORS.into_iter().map(TextMatch::of)
}

/// Returns the name of an operator's function, and whether the function's result must be negated.
/// Returns `None` for an operator without a function.
pub(super) fn name(operator: Operator) -> Option<(&'static str, bool)> {
    Some(match operator {
        Operator::RegexMatch => ("regex_match", false),
        Operator::RegexNotMatch => ("regex_match", true),
        Operator::RegexIMatch => ("regex_imatch", false),
        Operator::RegexNotIMatch => ("regex_imatch", true),
        Operator::LikeMatch => ("like_match", false),
        Operator::NotLikeMatch => ("like_match", true),
        Operator::ILikeMatch => ("ilike_match", false),
        Operator::NotILikeMatch => ("ilike_match", true),
        _ => return None,
    })
}

/// A function that returns whether a text matches a pattern, or NULL if one of them is NULL.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(super) struct TextMatch {
    operator: Operator,
    signature: Signature,
}

impl TextMatch {
    fn of(operator: Operator) -> Self {
        Self {
            operator,
            // The planner has made the types equal for the operator.
            signature: Signature::any(2, Volatility::Immutable),
        }
    }
}

impl ScalarUDFImpl for TextMatch {
    fn name(&self) -> &'static str {
        name(self.operator).map_or("", |(name, _)| name)
    }

    fn signature(&self) -> &Signature {
        &self.signature
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
