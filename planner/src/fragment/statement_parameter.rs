//! A generic plan is made once and used again with other values. Each value of a parameter is a
//! literal in it, and the metadata of the literal says which parameter it stands for. The literal
//! takes part in planning like any other literal, and it can be recognised in the finished plan.

use std::collections::{BTreeMap, HashMap};

use datafusion::common::ScalarValue;
use datafusion::common::metadata::FieldMetadata;
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::error::Result;
use datafusion::logical_expr::Expr;

/// Key of the metadata entry that holds the number of the parameter.
const PARAMETER_KEY: &str = "volary.parameter";

/// Returns the literal for a parameter that has this value while the plan is made. Parameters are
/// numbered from 0.
pub fn literal(value: ScalarValue, number: usize) -> Expr {
    let metadata = BTreeMap::from([(PARAMETER_KEY.to_owned(), number.to_string())]);
    Expr::Literal(value, Some(FieldMetadata::new(metadata)))
}

/// Returns the number of the parameter that a literal with this metadata stands for.
pub(crate) fn parameter_number(metadata: &HashMap<String, String>) -> Option<usize> {
    parse_number(metadata.get(PARAMETER_KEY))
}

fn parse_number(number: Option<&String>) -> Option<usize> {
    number?.parse().ok()
}

/// Returns the expression with these values in place of its parameters.
///
/// # Errors
/// No error is known: an expression can always be rebuilt.
pub(crate) fn substitute_values(expression: &Expr, values: &[ScalarValue]) -> Result<Expr> {
    let replaced = expression.clone().transform(|node| {
        let Expr::Literal(_, Some(metadata)) = &node else {
            return Ok(Transformed::no(node));
        };
        let number = parse_number(metadata.inner().get(PARAMETER_KEY));
        Ok(match number.and_then(|number| values.get(number)) {
            Some(value) => Transformed::yes(Expr::Literal(value.clone(), None)),
            None => Transformed::no(node),
        })
    })?;
    Ok(replaced.data)
}

#[cfg(test)]
mod tests {
    use datafusion::logical_expr::{col, lit};

    use super::*;

    #[test]
    fn only_literals_of_parameters_get_other_values() {
        let expression = col("k")
            .eq(literal(ScalarValue::from(1), 1))
            .and(col("v").gt(lit(1)));
        let values = [ScalarValue::from("unused"), ScalarValue::from(7)];
        let replaced = substitute_values(&expression, &values).unwrap();
        assert_eq!(replaced, col("k").eq(lit(7)).and(col("v").gt(lit(1))));
    }
}
