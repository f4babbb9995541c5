use std::sync::Arc;

use datafusion::DATAFUSION_VERSION;
use datafusion::arrow::datatypes::{DataType, Field, FieldRef};
use datafusion::common::internal_err;
use datafusion::error::Result;
use datafusion::logical_expr::simplify::{ExprSimplifyResult, SimplifyContext};
use datafusion::logical_expr::{
    ColumnarValue, Expr, ReturnFieldArgs, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature,
    Volatility, lit,
};

use crate::session_settings::SessionSettings;

/// Returns the functions that tell about the session: `current_user`, `current_schema`,
/// `current_catalog` and `version`. `version` is the release of Volary.
pub fn functions(version: &str) -> [Arc<ScalarUDF>; 4] {
    let version = format!("Volary {version} (DataFusion {DATAFUSION_VERSION})");
    [
        // A session has the rights of all roles of its user, so no role but the user is current.
        function(
            "current_user",
            &["session_user", "current_role"],
            Answer::User,
        ),
        function("current_schema", &[], Answer::Schema),
        function("current_catalog", &["current_database"], Answer::Catalog),
        function("version", &[], Answer::Text(version)),
    ]
}

fn function(name: &'static str, aliases: &[&str], answer: Answer) -> Arc<ScalarUDF> {
    Arc::new(ScalarUDF::from(SessionFunction {
        name,
        aliases: aliases.iter().map(|alias| (*alias).to_owned()).collect(),
        // The value is that of the session which asks, so it may not be kept for others.
        signature: Signature::nullary(Volatility::Stable),
        answer,
    }))
}

/// What a function tells.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Answer {
    User,
    Schema,
    Catalog,
    Text(String),
}

/// A function without arguments whose value is a text that is known when a statement is planned.
#[derive(Debug, PartialEq, Eq, Hash)]
struct SessionFunction {
    name: &'static str,
    aliases: Vec<String>,
    signature: Signature,
    answer: Answer,
}

impl ScalarUDFImpl for SessionFunction {
    fn name(&self) -> &str {
        self.name
    }

    fn aliases(&self) -> &[String] {
        &self.aliases
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8)
    }

    fn return_field_from_args(&self, _: ReturnFieldArgs<'_>) -> Result<FieldRef> {
        Ok(Arc::new(Field::new(self.name, DataType::Utf8, false)))
    }

    fn invoke_with_args(&self, _: ScalarFunctionArgs) -> Result<ColumnarValue> {
        internal_err!("{}() is computed when a statement is planned", self.name)
    }

    fn simplify(&self, _: Vec<Expr>, info: &SimplifyContext) -> Result<ExprSimplifyResult> {
        let options = info.config_options();
        let value = match &self.answer {
            Answer::User => SessionSettings::user(options).to_string(),
            Answer::Schema => options.catalog.default_schema.clone(),
            Answer::Catalog => options.catalog.default_catalog.clone(),
            Answer::Text(text) => text.clone(),
        };
        Ok(ExprSimplifyResult::Simplified(lit(value)))
    }
}
