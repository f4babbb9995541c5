//! The session's options, as drivers set and read them: `catalog`, `schema`, `volary-types`, and every setting that SET
//! knows.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use volary_flight_proto::session::close_session_result::Status as CloseStatus;
use volary_flight_proto::session::session_option_value::OptionValue;
use volary_flight_proto::session::set_session_options_result::{Error as OptionError, ErrorValue};
use volary_flight_proto::session::{
    CloseSessionResult, GetSessionOptionsResult, SessionOptionValue, SetSessionOptionsRequest,
    SetSessionOptionsResult,
};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::FlightSql;
use super::call::Call;
use super::types::PROFILE_OPTION;
use crate::engine::context::{CATALOG, PUBLIC};

const CATALOG_OPTION: &str = "catalog";
const SCHEMA_OPTION: &str = "schema";

impl FlightSql {
    /// SetSessionOptions: the body of its answer. Options that cannot be set are named in it; the others are set.
    pub(super) async fn set_session_options(&self, call: &Call, body: &Bytes) -> Result<Bytes> {
        let request = SetSessionOptionsRequest::decode(body.clone()).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                "the body of SetSessionOptions cannot be decoded",
                source,
            )
        })?;
        let mut result = SetSessionOptionsResult::default();
        for (name, value) in request.session_options {
            let set = self.set_option(call, &name, value.option_value).await;
            if let Err(error) = set {
                tracing::debug!(option = name, ?error, "a session option was not set");
                result.errors.insert(
                    name,
                    OptionError {
                        value: error.into(),
                    },
                );
            }
        }
        Ok(result.encode_to_vec().into())
    }

    async fn set_option(
        &self,
        call: &Call,
        name: &str,
        value: Option<OptionValue>,
    ) -> Result<(), ErrorValue> {
        let value = value.map(option_text).transpose()?;
        match name {
            CATALOG_OPTION => match value.as_deref() {
                None | Some("" | CATALOG) => Ok(()),
                Some(_) => Err(ErrorValue::InvalidValue),
            },
            // Tables are made in one schema; the other ones are named in full.
            SCHEMA_OPTION => match value.as_deref() {
                None | Some("" | PUBLIC) => Ok(()),
                Some(_) => Err(ErrorValue::InvalidValue),
            },
            PROFILE_OPTION => {
                let profile = value.map(|text| text.parse()).transpose();
                call.session
                    .set_profile(profile.map_err(|_| ErrorValue::InvalidValue)?);
                Ok(())
            }
            _ if is_setting_name(name) => self.set_setting(call, name, value).await,
            _ => Err(ErrorValue::InvalidName),
        }
    }

    /// As the statement SET, or RESET, does it: keys and values have one check.
    async fn set_setting(
        &self,
        call: &Call,
        name: &str,
        value: Option<String>,
    ) -> Result<(), ErrorValue> {
        let sql = match value {
            Some(value) => format!("SET {name} = '{}'", value.replace('\'', "''")),
            None => format!("RESET {name}"),
        };
        let setting = self.engine.execute(&call.session.engine, &sql, None, None);
        match call.deadline.bound(Box::pin(setting)).await {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::debug!(%error, "a setting was refused");
                Err(match error.code() {
                    ErrorCode::NotFound => ErrorValue::InvalidName,
                    ErrorCode::InvalidArgument => ErrorValue::InvalidValue,
                    _ => ErrorValue::Error,
                })
            }
        }
    }

    /// GetSessionOptions: the body of its answer.
    pub(super) fn session_options(call: &Call) -> Bytes {
        let mut options = call.session.engine.settings();
        let mut put = |name: &str, value: String| options.insert(name.to_owned(), value);
        put(CATALOG_OPTION, CATALOG.to_owned());
        put(SCHEMA_OPTION, PUBLIC.to_owned());
        put(PROFILE_OPTION, call.profile.to_string());
        let session_options: HashMap<_, _> = options
            .into_iter()
            .map(|(name, value)| {
                let option_value = Some(OptionValue::StringValue(value));
                (name, SessionOptionValue { option_value })
            })
            .collect();
        GetSessionOptionsResult { session_options }
            .encode_to_vec()
            .into()
    }

    /// CloseSession: the body of its answer.
    pub(super) fn close_session(&self, call: &Call) -> Bytes {
        self.sessions.close(&call.credentials);
        let result = CloseSessionResult {
            status: CloseStatus::Closed.into(),
        };
        result.encode_to_vec().into()
    }
}

fn option_text(value: OptionValue) -> Result<String, ErrorValue> {
    match value {
        OptionValue::StringValue(text) => Ok(text),
        OptionValue::BoolValue(value) => Ok(value.to_string()),
        OptionValue::Int64Value(value) => Ok(value.to_string()),
        OptionValue::DoubleValue(value) => Ok(value.to_string()),
        OptionValue::StringListValue(_) => Err(ErrorValue::InvalidValue),
    }
}

/// Whether the name can stand in a SET as it is.
fn is_setting_name(name: &str) -> bool {
    !name.is_empty()
        && name.split('.').all(|part| {
            part.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
                && part
                    .bytes()
                    .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_settings_name_cannot_carry_sql() {
        assert!(is_setting_name("datafusion.execution.batch_size"));
        for name in ["", "a b", "a;b", "a = 1", "a.", ".a", "1a", "a'b", "a--"] {
            assert!(!is_setting_name(name), "{name}");
        }
    }

    #[test]
    fn values_of_all_types_but_lists_are_text() {
        assert_eq!(
            option_text(OptionValue::BoolValue(true)),
            Ok("true".to_owned())
        );
        assert_eq!(
            option_text(OptionValue::Int64Value(-1)),
            Ok("-1".to_owned())
        );
        let list = OptionValue::StringListValue(Default::default());
        assert_eq!(option_text(list), Err(ErrorValue::InvalidValue));
    }
}
