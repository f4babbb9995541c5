//! DataFusion 55 computes `ceil`, `floor` and `trunc` of integers with floating-point numbers,
//! which do not have all digits of large integers. Here, the value of an integer is an integer.

use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, Decimal128Array};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Decimal128Type, FieldRef, Int64Type};
use datafusion::common::Result;
use datafusion::common::types::{NativeType, logical_int64};
use datafusion::functions::math;
use datafusion::logical_expr::interval_arithmetic::Interval;
use datafusion::logical_expr::preimage::PreimageResult;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::sort_properties::{ExprProperties, SortProperties};
use datafusion::logical_expr::{
    Coercion, ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature, TypeSignature, TypeSignatureClass,
};

use crate::columnar::{finish, rows_of};

/// Returns the functions that round numbers to integers.
pub(crate) fn functions() -> [Arc<ScalarUDF>; 3] {
    [math::ceil(), math::floor(), math::trunc()].map(|function| {
        let integer = Coercion::new_exact(TypeSignatureClass::Integer);
        let mut signatures = vec![TypeSignature::Coercible(vec![integer.clone()])];
        if function.name() == "trunc" {
            let digits = Coercion::new_implicit(
                TypeSignatureClass::Native(logical_int64()),
                vec![TypeSignatureClass::Integer],
                NativeType::Int64,
            );
            signatures.push(TypeSignature::Coercible(vec![integer, digits]));
        }
        let others = function.signature();
        match &others.type_signature {
            TypeSignature::OneOf(others) => signatures.extend(others.iter().cloned()),
            other => signatures.push(other.clone()),
        }
        let signature = Signature::one_of(signatures, others.volatility);
        Arc::new(ScalarUDF::from(IntegerRounding {
            function,
            signature,
        }))
    })
}

/// The function of DataFusion, which is called for numbers other than integers.
#[derive(Debug, PartialEq, Eq, Hash)]
struct IntegerRounding {
    function: Arc<ScalarUDF>,
    signature: Signature,
}

impl ScalarUDFImpl for IntegerRounding {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        match arg_types.first() {
            Some(integer) if integer.is_integer() => Ok(integer.clone()),
            _ => self.function.inner().return_type(arg_types),
        }
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        match args.arg_fields.first() {
            Some(field) if field.data_type().is_integer() => {
                let is_nullable = args.arg_fields.iter().any(|field| field.is_nullable());
                let field = field.as_ref().clone();
                Ok(Arc::new(
                    field.with_name(self.name()).with_nullable(is_nullable),
                ))
            }
            _ => self.function.return_field_from_args(args),
        }
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let is_integer = args.first().map(|number| info.get_data_type(number));
        if is_integer
            .transpose()?
            .is_some_and(|number| number.is_integer())
        {
            return Ok(ExprSimplifyResult::Original(args));
        }
        self.function.simplify(args, info)
    }

    fn preimage(
        &self,
        args: &[Expr],
        literal: &Expr,
        info: &SimplifyContext,
    ) -> Result<PreimageResult> {
        match args.first() {
            Some(number) if !info.get_data_type(number)?.is_integer() => {
                self.function.inner().preimage(args, literal, info)
            }
            _ => Ok(PreimageResult::None),
        }
    }

    fn is_strict(&self) -> bool {
        self.function.inner().is_strict()
    }

    fn evaluate_bounds(&self, inputs: &[&Interval]) -> Result<Interval> {
        match inputs {
            [number] if number.data_type().is_integer() => Ok((*number).clone()),
            _ => self.function.evaluate_bounds(inputs),
        }
    }

    fn output_ordering(&self, inputs: &[ExprProperties]) -> Result<SortProperties> {
        self.function.output_ordering(inputs)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        match args.args.as_slice() {
            [number] if number.data_type().is_integer() => Ok(number.clone()),
            [number, digits] if number.data_type().is_integer() => {
                let rows = rows_of(&args.args, args.number_rows);
                let truncated = truncate(&number.to_array(rows)?, &digits.to_array(rows)?)?;
                finish(&args.args, truncated)
            }
            _ => self.function.invoke_with_args(args),
        }
    }
}

/// Replaces the last digits of integers by zeros. A positive number of digits counts those after
/// the point, of which integers have none.
fn truncate(numbers: &ArrayRef, digits: &ArrayRef) -> Result<ArrayRef> {
    // All integers fit this type.
    let wide = DataType::Decimal128(20, 0);
    let wide_numbers = cast(numbers, &wide)?;
    let wide_numbers = wide_numbers.as_primitive::<Decimal128Type>();
    let digits = digits.as_primitive::<Int64Type>();
    let truncated = wide_numbers.iter().zip(digits).map(|row| {
        let (Some(number), Some(digits)) = row else {
            return None;
        };
        Some(match u32::try_from(digits.unsigned_abs()) {
            _ if digits >= 0 => number,
            Ok(zeros) if zeros <= 20 => {
                let unit = 10_i128.pow(zeros);
                number / unit * unit
            }
            _ => 0,
        })
    });
    let truncated: Decimal128Array = truncated.collect();
    Ok(cast(&truncated.with_data_type(wide), numbers.data_type())?)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::Field;
    use datafusion::common::ScalarValue;
    use datafusion::config::ConfigOptions;

    use super::*;

    #[test]
    fn constants_have_a_value_even_in_a_batch_without_rows() {
        let [_, _, trunc] = functions();
        let numbers = [1_299_i64, -2].map(|it| ColumnarValue::Scalar(ScalarValue::from(it)));
        let field = Arc::new(Field::new("", DataType::Int64, false));
        let args = ScalarFunctionArgs {
            args: numbers.to_vec(),
            arg_fields: vec![Arc::clone(&field), Arc::clone(&field)],
            number_rows: 0,
            return_field: field,
            config_options: Arc::new(ConfigOptions::default()),
        };
        let truncated = trunc.invoke_with_args(args).unwrap();
        let ColumnarValue::Scalar(truncated) = truncated else {
            panic!("an array");
        };
        assert_eq!(truncated, ScalarValue::Int64(Some(1_200)));
    }
}
