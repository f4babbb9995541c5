use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DataFusionError, Result, resources_err};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::argument::Argument;
use super::growth::PerRow;
use super::{MAX_VALUES_PER_BATCH, folding, growth, padding, row_retry, rule, steps};
use volary_node::memory::{ByteLimit, ProcessMemory, ProcessReservation};
use volary_node::size::MemorySize;

/// The rows of a batch together may take this many times the steps of one value, if the caller
/// cannot reduce the rows.
const STEPS_AT_ONCE: u64 = 8;

/// A function with a limit on the size of its values and on the time that it computes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct BoundedFunction {
    function: Arc<ScalarUDF>,
    limit_bytes: u64,
    setting: &'static str,
}

impl BoundedFunction {
    /// Wraps a function if it makes large values from small ones, or computes for long, and has no
    /// limit yet.
    pub(super) fn of(function: Arc<ScalarUDF>, limit: ByteLimit) -> Option<Self> {
        let grows = growth::value_sizes(function.name(), &[]).is_ok_and(|growth| growth.is_some());
        let is_slow = steps::value_steps(function.name(), &[]).is_some();
        let is_bounded = function.inner().is::<Self>();
        ((grows || is_slow) && !is_bounded).then(|| Self {
            function,
            limit_bytes: limit.bytes as u64,
            setting: limit.setting,
        })
    }

    /// Returns an upper bound of the bytes that all values take together.
    ///
    /// # Errors
    /// `ResourcesExhausted` if a value, or all values of a batch, would be too large or take too
    /// many steps. If the caller can reduce the rows, it is asked for fewer.
    fn check_bytes(&self, args: &ScalarFunctionArgs) -> Result<u64> {
        let arguments: Vec<_> = args.args.iter().map(Argument::new).collect::<Result<_>>()?;
        let are_scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if are_scalar { 1 } else { args.number_rows };
        if let Some(steps_of) = steps::value_steps(self.function.name(), &arguments) {
            self.check_steps(rows, steps_of)?;
        }
        match growth::value_sizes(self.function.name(), &arguments)? {
            Some(size_of) => self.check_sizes(rows, size_of),
            None => Ok(0),
        }
    }

    fn check_steps(&self, rows: usize, steps_of: PerRow<'_>) -> Result<()> {
        let most = if folding::is_folding() {
            folding::MAX_STEPS
        } else {
            steps::MAX_PER_VALUE
        };
        let (total, largest) = total_and_largest(rows, steps_of);
        if largest > most {
            return resources_err!(
                "{}(…) would take {largest} steps for one value, and may take {most}: give it shorter arguments",
                self.function.name()
            );
        }
        if fitting_rows(
            rows,
            total,
            row_retry::MAX_STEPS,
            most.saturating_mul(STEPS_AT_ONCE),
        ) < rows
        {
            return resources_err!(
                "{}(…) would take {total} steps for {rows} rows at once: give it shorter arguments, or compute it in a SELECT of its own",
                self.function.name()
            );
        }
        Ok(())
    }

    fn check_sizes(&self, rows: usize, size_of: PerRow<'_>) -> Result<u64> {
        let (total, largest) = total_and_largest(rows, size_of);
        if largest > self.limit_bytes {
            return Err(self.too_large(&format!("a value of {}", size(largest)), ""));
        }
        let most = self.limit_bytes.saturating_mul(MAX_VALUES_PER_BATCH as u64);
        if fitting_rows(rows, total, row_retry::MAX_BYTES, most) < rows {
            let made = format!("{} for {rows} rows at once", size(total));
            return Err(self.too_large(
                &made,
                &format!(
                    " for a value and {MAX_VALUES_PER_BATCH} times that for the rows of a batch"
                ),
            ));
        }
        Ok(total)
    }

    /// Reserves memory of the process for the values that are to be made.
    ///
    /// # Errors
    /// `ResourcesExhausted` if there is too little memory. If the caller can reduce the rows, it is
    /// asked for fewer.
    fn reserve(&self, bytes: u64, rows: usize) -> Result<Option<ProcessReservation<'static>>> {
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let reservation =
            ProcessMemory::this().try_reserve(bytes, || format!("{}(…)", self.name()));
        if reservation.is_err() && rows > 1 {
            row_retry::ask_for_rows(rows / 2);
        }
        reservation
    }

    fn too_large(&self, made: &str, of_what: &str) -> DataFusionError {
        DataFusionError::ResourcesExhausted(format!(
            "{}(…) would make {made}; {} allows {}{of_what}",
            self.function.name(),
            self.setting,
            size(self.limit_bytes),
        ))
    }
}

/// Returns the sum over all rows, and the largest value of a row.
fn total_and_largest(rows: usize, of_row: PerRow<'_>) -> (u64, u64) {
    (0..rows).map(of_row).fold((0, 0), |(total, largest), row| {
        (u64::saturating_add(total, row), largest.max(row))
    })
}

/// Returns how many of the rows may be computed at once, where `total` is the sum over all of them.
/// If the caller can reduce the rows, the lower one of `most_at_once` and `most` is the limit for
/// the sum, and the caller is asked for as many rows as fit. Otherwise `most` is the limit.
fn fitting_rows(rows: usize, total: u64, most_at_once: u64, most: u64) -> usize {
    let can_be_fewer = row_retry::can_reduce_rows() && rows > 1;
    let most = if can_be_fewer {
        most_at_once.min(most)
    } else {
        most
    };
    if total <= most {
        return rows;
    }
    let part = u128::from(most) * rows as u128 / u128::from(total);
    let fit = usize::try_from(part).unwrap_or(rows).clamp(1, rows);
    // At most half of the rows are tried next, so that retries end soon if a few rows need most of
    // the sum.
    let fit = if rows > 1 { fit.min(rows / 2) } else { 0 };
    if can_be_fewer {
        row_retry::ask_for_rows(fit);
    }
    fit
}

fn size(bytes: u64) -> MemorySize {
    MemorySize::Bytes(bytes)
}

// Methods that are missing here have their defaults in the wrapped functions, too.
impl ScalarUDFImpl for BoundedFunction {
    fn name(&self) -> &str {
        self.function.name()
    }

    fn aliases(&self) -> &[String] {
        self.function.aliases()
    }

    fn schema_name(&self, args: &[Expr]) -> Result<String> {
        self.function.schema_name(args)
    }

    fn signature(&self) -> &Signature {
        self.function.signature()
    }

    fn return_type(&self, arg_types: &[DataType]) -> Result<DataType> {
        self.function.return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        // The wrapped function becomes an operator, which has no limit. Plain patterns need none.
        let is_plain = args.get(1).is_some_and(rule::is_plain_expression);
        if self.name() == "regexp_like" && is_plain {
            return self.function.simplify(args, info);
        }
        if let Some(operator) = rule::plain_like(self.name(), &args) {
            return Ok(ExprSimplifyResult::Simplified(operator));
        }
        Ok(ExprSimplifyResult::Original(args))
    }

    fn is_strict(&self) -> bool {
        self.function.is_strict()
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = self.function.inner().with_updated_config(config)?;
        Some(ScalarUDF::from(Self {
            function: Arc::new(function),
            ..self.clone()
        }))
    }

    fn invoke_with_args(&self, mut args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        if padding::is_padding(self.name()) {
            padding::without_negative_lengths(&mut args)?;
        } else if self.name() == "array_resize" {
            padding::check_list_lengths(&args)?;
        }
        // The planner treats an error as a reason to leave the call as it is.
        if folding::is_out_of_time() {
            return resources_err!(
                "the constants of the statement take too long to be computed while it is planned"
            );
        }
        let bytes = self.check_bytes(&args)?;
        if bytes > folding::MAX_BYTES && folding::is_folding() {
            return resources_err!(
                "{}(…) would make a constant of {}, which is not computed while a statement is planned",
                self.function.name(),
                size(bytes)
            );
        }
        let _being_made = self.reserve(bytes, args.number_rows)?;
        self.function.invoke_with_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}
