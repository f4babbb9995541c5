//! A function that refuses to make values that are too large.

use std::sync::Arc;

use arrow::datatypes::{DataType, FieldRef};
use datafusion::common::{DataFusionError, Result};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::argument::Argument;
use super::{folding, growth, padding};
use crate::memory::{Limit, ProcessMemory};
use crate::size::MemorySize;

/// The values of a batch of rows may take so many times the limit of one together.
const VALUES_AT_ONCE: u64 = 4;

/// A function with a limit for what it makes.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Bounded {
    function: Arc<ScalarUDF>,
    limit_bytes: u64,
    setting: &'static str,
}

impl Bounded {
    /// The function with a limit, if it makes large values of small ones and has none yet.
    pub(super) fn of(function: Arc<ScalarUDF>, limit: Limit) -> Option<Self> {
        let grows = growth::of(function.name(), &[]).is_ok_and(|growth| growth.is_some());
        let is_bounded = function.inner().is::<Self>();
        (grows && !is_bounded).then(|| Self {
            function,
            limit_bytes: limit.bytes as u64,
            setting: limit.setting,
        })
    }

    /// How many bytes the values take together, at the most.
    ///
    /// # Errors
    /// `ResourcesExhausted` if a value, or all of a batch, would be too large.
    fn checked_bytes(&self, args: &ScalarFunctionArgs) -> Result<u64> {
        let arguments: Vec<_> = args.args.iter().map(Argument::new).collect::<Result<_>>()?;
        let Some(size_of) = growth::of(self.function.name(), &arguments)? else {
            return Ok(0);
        };
        let are_scalar = args
            .args
            .iter()
            .all(|value| matches!(value, ColumnarValue::Scalar(_)));
        let rows = if are_scalar { 1 } else { args.number_rows };
        let mut total: u64 = 0;
        for row in 0..rows {
            let bytes = size_of(row);
            if bytes > self.limit_bytes {
                return Err(self.too_large(&format!("a value of {}", size(bytes)), ""));
            }
            total = total.saturating_add(bytes);
        }
        if total > self.limit_bytes.saturating_mul(VALUES_AT_ONCE) {
            let made = format!("{} for {rows} rows at once", size(total));
            return Err(self.too_large(
                &made,
                &format!(" for a value and {VALUES_AT_ONCE} times that for the rows of a batch"),
            ));
        }
        Ok(total)
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

fn size(bytes: u64) -> MemorySize {
    MemorySize::Bytes(bytes)
}

// What is not here is the default, which the functions that grow have. Simplifying one would make one without a limit.
impl ScalarUDFImpl for Bounded {
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
        }
        let bytes = self.checked_bytes(&args)?;
        if bytes > folding::MOST_BYTES && folding::is_folding() {
            // Whoever asks takes that for a reason to leave the call as it is.
            return Err(DataFusionError::ResourcesExhausted(format!(
                "{}(…) would make a constant of {}, which is not computed while a statement is planned",
                self.function.name(),
                size(bytes),
            )));
        }
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        let _being_made = ProcessMemory::this().make(bytes, || format!("{}(…)", self.name()))?;
        self.function.invoke_with_args(args)
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }
}
