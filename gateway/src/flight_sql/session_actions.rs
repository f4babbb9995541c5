use std::collections::HashMap;

use bytes::Bytes;
use prost::Message;
use volary_flight_proto::Result;
use volary_flight_proto::session::close_session_result::Status as CloseStatus;
use volary_flight_proto::session::session_option_value::OptionValue;
use volary_flight_proto::session::set_session_options_result::{Error as OptionError, ErrorValue};
use volary_flight_proto::session::{
    CloseSessionResult, GetSessionOptionsResult, SessionOptionValue, SetSessionOptionsRequest,
    SetSessionOptionsResult,
};

use super::FlightSql;
use super::actions::decode_body;
use super::call::ClientCall;
use super::direct_option::DIRECT_RESULTS_OPTION;
use super::sessions::ClientSession;
use crate::client_types::PROFILE_OPTION;
use crate::engine::Session;
use crate::sql::names::CATALOG;

const CATALOG_OPTION: &str = "catalog";
const SCHEMA_OPTION: &str = "schema";

impl FlightSql {
    /// Handles SetSessionOptions and returns the body of the answer. The answer names the options
    /// that cannot be set. The other options are set.
    pub(super) fn set_session_options(&self, call: &ClientCall, body: &Bytes) -> Result<Bytes> {
        let request: SetSessionOptionsRequest = decode_body("SetSessionOptions", body)?;
        let mut result = SetSessionOptionsResult::default();
        for (name, value) in request.session_options {
            let is_schema = name == SCHEMA_OPTION || Session::is_schema_setting(&name);
            let outcome = match value.option_value {
                value if is_schema => self.set_schema(&call.session, value),
                value => set_option(&call.session, &name, value),
            };
            if let Err(error) = outcome {
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

    /// Sets the current schema of the session, or unsets it if there is no value.
    fn set_schema(
        &self,
        session: &ClientSession,
        value: Option<OptionValue>,
    ) -> Result<(), ErrorValue> {
        let schema = value.map(option_text).transpose()?;
        let schema = schema.as_deref().filter(|schema| !schema.is_empty());
        self.engine
            .use_schema(&session.engine, schema)
            .map_err(|error| {
                tracing::debug!(%error, "the schema was refused");
                ErrorValue::InvalidValue
            })
    }

    /// Handles GetSessionOptions and returns the body of the answer.
    pub(super) fn session_options(call: &ClientCall) -> Bytes {
        let mut options = call.session.engine.settings();
        let mut put = |name: &str, value: String| options.insert(name.to_owned(), value);
        put(CATALOG_OPTION, CATALOG.to_owned());
        put(SCHEMA_OPTION, call.session.engine.schema());
        put(PROFILE_OPTION, call.profile.to_string());
        put(DIRECT_RESULTS_OPTION, call.direct_results.to_string());
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

    /// Handles CloseSession and returns the body of the answer.
    pub(super) async fn close_session(&self, call: &ClientCall) -> Bytes {
        if let Some(token) = &call.session_token {
            self.sessions.close(&call.principal.rights, token);
            self.engine.end_session(&call.session.engine).await;
        }
        self.login.close_session(&call.principal);
        let result = CloseSessionResult {
            status: CloseStatus::Closed.into(),
        };
        result.encode_to_vec().into()
    }
}

/// Sets an option, or unsets it if there is no value.
fn set_option(
    session: &ClientSession,
    name: &str,
    value: Option<OptionValue>,
) -> Result<(), ErrorValue> {
    let value = value.map(option_text).transpose()?;
    match name {
        CATALOG_OPTION => check_fixed_value(CATALOG, value.as_deref()),
        PROFILE_OPTION => {
            let profile = value.map(|text| text.parse()).transpose();
            session.set_profile(profile.map_err(|_| ErrorValue::InvalidValue)?);
            Ok(())
        }
        DIRECT_RESULTS_OPTION => {
            let direct = value.map(|text| text.parse()).transpose();
            session.set_direct_results(direct.map_err(|_| ErrorValue::InvalidValue)?);
            Ok(())
        }
        _ if Session::has_setting(name) => {
            session.engine.change_setting(name, value).map_err(|error| {
                tracing::debug!(%error, "a setting was refused");
                ErrorValue::InvalidValue
            })
        }
        _ => Err(ErrorValue::InvalidName),
    }
}

/// Refuses all values of an option except the one that the option always has.
fn check_fixed_value(allowed: &str, value: Option<&str>) -> Result<(), ErrorValue> {
    match value {
        None | Some("") => Ok(()),
        Some(value) if value == allowed => Ok(()),
        Some(_) => Err(ErrorValue::InvalidValue),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use volary_catalog::access::Rights;

    use super::*;

    fn set(session: &ClientSession, name: &str, value: &str) -> Result<(), ErrorValue> {
        set_option(
            session,
            name,
            Some(OptionValue::StringValue(value.to_owned())),
        )
    }

    #[test]
    fn an_option_that_does_not_exist_and_a_value_that_it_does_not_take_are_told_apart() {
        let session = ClientSession::new(HashMap::new(), Arc::new(Rights::of_open_cluster("kea")));
        for name in [
            "no_such_setting",
            "datafusion.catalog.location",
            "",
            "a'b",
            "timezone = 'UTC'; --",
        ] {
            assert_eq!(
                set(&session, name, "1"),
                Err(ErrorValue::InvalidName),
                "{name}"
            );
        }
        for (name, value) in [
            (CATALOG_OPTION, "other"),
            (PROFILE_OPTION, "newest"),
            (DIRECT_RESULTS_OPTION, "sometimes"),
            ("timezone", "Mars/Phobos"),
            ("batch_size", "0"),
            ("target_partitions", "many"),
            ("parse_float_as_decimal", "maybe"),
            ("default_null_ordering", "nulls_somewhere"),
            ("statement_timeout", "soon"),
            ("query_memory", "much"),
        ] {
            assert_eq!(
                set(&session, name, value),
                Err(ErrorValue::InvalidValue),
                "{name}"
            );
        }
        assert!(session.is_default());
    }

    #[test]
    fn an_option_is_set_and_unset_by_any_of_its_names() {
        let session = ClientSession::new(HashMap::new(), Arc::new(Rights::of_open_cluster("kea")));
        for name in ["timezone", "time_zone", "datafusion.execution.time_zone"] {
            assert_eq!(set(&session, name, "+02:00"), Ok(()));
            assert_eq!(
                session.engine.settings(),
                [("volary.time_zone".to_owned(), "+02:00".to_owned())].into()
            );
            assert_eq!(set_option(&session, name, None), Ok(()));
            assert!(session.is_default());
        }
        assert_eq!(set(&session, CATALOG_OPTION, CATALOG), Ok(()));
        assert!(session.is_default());
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
