//! Some functions read times with a pattern. A pattern with a `%` is one of DataFusion, such as
//! `%Y-%m-%d`, and every other one is a template of PostgreSQL.

use std::sync::Arc;

use arrow::array::{Array, ArrayRef, AsArray, BooleanArray, StringViewArray, StringViewBuilder};
use arrow::compute::kernels::zip::zip;
use arrow::compute::{cast, not, nullif};
use arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::config::ConfigOptions;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Documentation, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF,
    ScalarUDFImpl, Signature,
};

use super::date_template::DateTemplate;
use super::to_char::is_chrono;
use crate::columnar::rows_of;

/// Returns functions that read times with patterns in a form that also takes templates of
/// PostgreSQL. `before` is the number of arguments before the text.
pub(crate) fn with_templates(
    functions: impl IntoIterator<Item = Arc<ScalarUDF>>,
    before: usize,
) -> Vec<Arc<ScalarUDF>> {
    let functions = functions.into_iter();
    let functions =
        functions.map(|function| Arc::new(ScalarUDF::from(ReadTime { function, before })));
    functions.collect()
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ReadTime {
    function: Arc<ScalarUDF>,
    /// Number of arguments before the text.
    before: usize,
}

// Methods that are missing here have their defaults in the wrapped functions, too.
impl ScalarUDFImpl for ReadTime {
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
        self.function.inner().return_type(arg_types)
    }

    fn return_field_from_args(&self, args: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        self.function.return_field_from_args(args)
    }

    fn simplify(&self, args: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        self.function.simplify(args, info)
    }

    fn with_updated_config(&self, config: &ConfigOptions) -> Option<ScalarUDF> {
        let function = self.function.inner().with_updated_config(config)?;
        Some(ScalarUDF::from(Self {
            function: Arc::new(function),
            before: self.before,
        }))
    }

    fn coerce_types(&self, arg_types: &[DataType]) -> Result<Vec<DataType>> {
        self.function.coerce_types(arg_types)
    }

    fn documentation(&self) -> Option<&Documentation> {
        self.function.documentation()
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        let (text, pattern) = (self.before, self.before + 1);
        let has_one_pattern = args.args.len() == pattern + 1;
        let is_text = |at: usize| args.args[at].data_type().is_string();
        if !has_one_pattern || !is_text(text) || !is_text(pattern) {
            return self.function.invoke_with_args(args);
        }
        if let ColumnarValue::Scalar(pattern) = &args.args[pattern]
            && pattern.try_as_str().flatten().is_some_and(is_chrono)
        {
            return self.function.invoke_with_args(args);
        }
        let rows = rows_of(&args.args, args.number_rows);
        let texts = |at: usize| {
            args.args[at]
                .cast_to(&DataType::Utf8View, None)?
                .to_array(rows)
        };
        let (texts, patterns) = (texts(text)?, texts(pattern)?);
        let (texts, patterns) = (texts.as_string_view(), patterns.as_string_view());
        let are_chrono: BooleanArray = patterns
            .iter()
            .map(|pattern| Some(pattern.is_some_and(is_chrono)))
            .collect();
        let iso = read_all(texts, patterns)?;
        let own = self.read_iso(&args, iso, rows)?;
        if are_chrono.true_count() == 0 {
            return Ok(own);
        }
        let mut of_others = args.clone();
        let others: ArrayRef = Arc::new(texts.clone());
        of_others.args[text] = ColumnarValue::Array(nullif(&others, &not(&are_chrono)?)?);
        of_others.arg_fields[text] = text_field();
        let others = self.function.inner().invoke_with_args(of_others)?;
        // DataFusion loses the time zone if the pattern is a column.
        let others = cast(&others.into_array(rows)?, args.return_field.data_type())?;
        let own = own.into_array(rows)?;
        Ok(ColumnarValue::Array(zip(&are_chrono, &others, &own)?))
    }
}

impl ReadTime {
    /// Lets the wrapped function read texts in the form of ISO 8601, without a pattern.
    fn read_iso(
        &self,
        args: &ScalarFunctionArgs,
        iso: ArrayRef,
        rows: usize,
    ) -> Result<ColumnarValue> {
        let are_constant = args.args[self.before..]
            .iter()
            .all(|argument| matches!(argument, ColumnarValue::Scalar(_)));
        let mut args = args.clone();
        args.args.truncate(self.before + 1);
        args.arg_fields.truncate(self.before + 1);
        args.arg_fields[self.before] = text_field();
        args.args[self.before] = if are_constant {
            ColumnarValue::Scalar(ScalarValue::try_from_array(&iso, 0)?)
        } else {
            ColumnarValue::Array(iso)
        };
        args.number_rows = rows;
        // DataFusion loses the time zone in some cases, such as NULL.
        let wanted = Arc::clone(&args.return_field);
        let read = self.function.inner().invoke_with_args(args)?;
        read.cast_to(wanted.data_type(), None)
    }
}

fn text_field() -> FieldRef {
    Arc::new(Field::new("text", DataType::Utf8View, true))
}

/// Reads each text with the template of its row. Rows with a pattern of DataFusion become NULL.
fn read_all(texts: &StringViewArray, templates: &StringViewArray) -> Result<ArrayRef> {
    let mut read = StringViewBuilder::with_capacity(texts.len());
    let mut last: Option<(&str, DateTemplate)> = None;
    for (text, written) in texts.iter().zip(templates) {
        let (Some(text), Some(written)) = (text, written.filter(|written| !is_chrono(written)))
        else {
            read.append_null();
            continue;
        };
        let template = match last.take() {
            Some((known, template)) if known == written => template,
            _ => DateTemplate::parse(written),
        };
        read.append_value(template.read(text)?);
        last = Some((written, template));
    }
    Ok(Arc::new(read.finish()))
}
