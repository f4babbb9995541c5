use std::collections::HashMap;
use std::time::Duration;

use datafusion::arrow::array::timezone::Tz;
use datafusion::prelude::SessionConfig;
use datafusion::sql::parser::Statement as DfStatement;
use datafusion::sql::planner::NullOrdering;
use datafusion::sql::sqlparser::ast::{Ident, Statement as Ast};
use volary_flight_proto::fragment::MAX_BATCH_ROWS;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};
use volary_node::size::MemorySize;
use volary_planner::fragment::MAX_TARGET_PARTITIONS;
use volary_planner::session_settings::{
    QUERY_MEMORY, READ_ONLY, RELAYS, STATEMENT_TIMEOUT, SessionSettings, TIME_ZONE, parse_timeout,
};

use crate::config::RelaySetting;

/// Key of the current schema: the schema of names that are written without one.
pub(super) const SCHEMA: &str = "datafusion.catalog.default_schema";

/// The settings that a session may change, by DataFusion's key or Volary's. Other settings belong
/// to the operator, or would break assumptions that cutting a plan into fragments relies on.
const SESSION_SETTINGS: [&str; 11] = [
    TIME_ZONE,
    SCHEMA,
    "datafusion.execution.batch_size",
    "datafusion.execution.target_partitions",
    "datafusion.sql_parser.default_null_ordering",
    "datafusion.sql_parser.parse_float_as_decimal",
    "datafusion.explain.show_statistics",
    STATEMENT_TIMEOUT,
    QUERY_MEMORY,
    RELAYS,
    READ_ONLY,
];

/// Returns the full key of a setting, by any of its names.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the list of existing settings, if no setting has the name.
pub(super) fn full_key(name: &str) -> Result<&'static str> {
    let name = name.to_lowercase();
    let name = match name.as_str() {
        "timezone" | "time.zone" | "datafusion.execution.time_zone" => TIME_ZONE,
        "search_path" | "schema" => SCHEMA,
        other => other,
    };
    SESSION_SETTINGS
        .into_iter()
        .find(|allowed| *allowed == name || allowed.rsplit('.').next() == Some(name))
        .ok_or_else(|| {
            Error::invalid(format!(
                "there is no session setting {name}; there are {}",
                SESSION_SETTINGS.join(", ")
            ))
            .with_sqlstate(SqlState::UndefinedObject)
        })
}

/// Applies a session's settings.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that a setting does not take.
pub(super) fn apply(config: &mut SessionConfig, settings: &HashMap<String, String>) -> Result<()> {
    for (name, value) in settings {
        // A ticket may come from a gateway of another version, with settings that this gateway does
        // not have.
        let Ok(key) = full_key(name) else { continue };
        check_allowed_value(key, value)?;
        config.options_mut().set(key, value).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("setting {key} does not take \"{value}\""),
                source,
            )
            .with_sqlstate(SqlState::InvalidParameterValue)
        })?;
    }
    Ok(())
}

/// Checks whether a setting takes the value.
///
/// # Errors
/// `INVALID_ARGUMENT` if it does not.
pub(super) fn check(key: &str, value: &str) -> Result<()> {
    let mut trial = SessionConfig::new().with_option_extension(SessionSettings::unlimited());
    apply(&mut trial, &[(key.to_owned(), value.to_owned())].into())
}

/// Replaces the name of the setting in a SHOW by its full key, because the planner knows no other
/// name.
pub(super) fn with_full_key(mut statement: DfStatement) -> DfStatement {
    if let DfStatement::Statement(ast) = &mut statement
        && let Ast::ShowVariable { variable } = ast.as_mut()
    {
        let verbose = variable.pop_if(|last| last.value.eq_ignore_ascii_case("verbose"));
        let parts: Vec<_> = variable.iter().map(|part| part.value.as_str()).collect();
        if let Ok(key) = full_key(&parts.join(".")) {
            *variable = key.split('.').map(Ident::new).collect();
        }
        variable.extend(verbose);
    }
    statement
}

/// Returns the time limit for statements of a session with these settings. `None` if only the
/// gateway's own limit applies.
pub(super) fn statement_timeout(settings: &HashMap<String, String>) -> Option<Duration> {
    settings
        .get(STATEMENT_TIMEOUT)
        .and_then(|value| parse_timeout(value))
        .filter(|timeout| !timeout.is_zero())
}

/// Refuses values that DataFusion would accept, but change silently or fail with later.
fn check_allowed_value(key: &str, value: &str) -> Result<()> {
    check_value(key, value).map_err(|error| error.with_sqlstate(SqlState::InvalidParameterValue))
}

fn check_value(key: &str, value: &str) -> Result<()> {
    if key == TIME_ZONE {
        return match value.parse::<Tz>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid(format!(
                "there is no time zone \"{value}\"; write a name such as Europe/Berlin, or an offset such as +02:00"
            ))),
        };
    }
    if key == "datafusion.sql_parser.default_null_ordering" {
        return match value.parse::<NullOrdering>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid(format!(
                "setting {key} takes nulls_max, nulls_min, nulls_first or nulls_last, not \"{value}\""
            ))),
        };
    }
    if key == STATEMENT_TIMEOUT {
        return match parse_timeout(value) {
            Some(_) => Ok(()),
            None => Err(Error::invalid(format!(
                "setting {key} takes a time such as 5s or 250ms, a number of milliseconds, or 0 for the gateway's own limit, not \"{value}\""
            ))),
        };
    }
    if key == QUERY_MEMORY {
        return match value.parse::<MemorySize>() {
            Ok(_) => Ok(()),
            Err(text) => Err(Error::invalid(format!("setting {key}: {text}"))),
        };
    }
    if key == RELAYS {
        return match value.parse::<RelaySetting>() {
            Ok(_) => Ok(()),
            Err(error) => Err(Error::invalid(format!(
                "setting {key}: {}",
                error.message()
            ))),
        };
    }
    if key == READ_ONLY {
        return match value.parse::<bool>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid(format!(
                "setting {key} takes true or false, not \"{value}\""
            ))),
        };
    }
    let number = value.parse::<usize>();
    let limit = match key {
        // With one partition, the planner would collect the left side of every join.
        "datafusion.execution.target_partitions" => 2..=MAX_TARGET_PARTITIONS,
        "datafusion.execution.batch_size" => 1..=MAX_BATCH_ROWS as usize,
        _ => return Ok(()),
    };
    match number {
        Ok(number) if limit.contains(&number) => Ok(()),
        _ => Err(Error::invalid(format!(
            "setting {key} takes a number from {} to {}, not \"{value}\"",
            limit.start(),
            limit.end()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use volary_node::memory;

    use super::*;

    const GATEWAY_MEMORY: memory::ByteLimit = memory::ByteLimit {
        bytes: 1 << 30,
        setting: "gateway.query.memory",
    };

    fn config(settings: &[(&str, &str)]) -> SessionConfig {
        let limits =
            SessionSettings::new(Duration::from_secs(60), GATEWAY_MEMORY, RelaySetting::Auto);
        let mut config = SessionConfig::new().with_option_extension(limits);
        let settings = settings
            .iter()
            .map(|(name, value)| (full_key(name).unwrap().to_owned(), (*value).to_owned()))
            .collect();
        apply(&mut config, &settings).unwrap();
        config
    }

    fn shown(config: &SessionConfig, key: &str) -> Option<String> {
        let entries = config.options().entries();
        let entry = entries.into_iter().find(|entry| entry.key == key);
        entry.unwrap().value
    }

    #[test]
    fn every_setting_is_found_by_its_short_name_and_takes_its_default() {
        let defaults: HashMap<String, Option<String>> = config(&[])
            .options()
            .entries()
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect();
        for allowed in SESSION_SETTINGS {
            let short = allowed.rsplit('.').next().unwrap();
            assert_eq!(full_key(short).unwrap(), allowed);
            assert_eq!(full_key(&allowed.to_uppercase()).unwrap(), allowed);
            // The default of `target_partitions` is the number of the machine's cores, which may be
            // below the minimum.
            if let Some(value) = &defaults[allowed]
                && short != "target_partitions"
            {
                assert!(check(allowed, value).is_ok(), "{allowed} = {value}");
            }
        }
    }

    #[test]
    fn values_that_would_be_mended_or_fail_later_are_refused() {
        for (name, value) in [
            ("time_zone", "Mars/Phobos"),
            ("target_partitions", "1"),
            ("batch_size", "0"),
            ("batch_size", "-1"),
            ("default_null_ordering", "nulls_somewhere"),
            ("parse_float_as_decimal", "maybe"),
            ("statement_timeout", "soon"),
            ("statement_timeout", "-1"),
            ("query_memory", "much"),
            ("query_memory", "0"),
            ("relays", "many"),
            ("relays", "0"),
            ("read_only", "perhaps"),
        ] {
            let error = check(full_key(name).unwrap(), value).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains(value), "{error}");
        }
    }

    #[test]
    fn a_session_can_only_lower_what_the_gateway_allows_and_is_shown_what_counts() {
        for (value, counts) in [
            ("5s", "5s"),
            ("1500", "1s 500ms"),
            ("2min", "1m"),
            ("0", "1m"),
        ] {
            let config = config(&[("statement_timeout", value)]);
            let shown = shown(&config, STATEMENT_TIMEOUT);
            assert_eq!(shown.as_deref(), Some(counts), "{value}");
        }
        let lower = config(&[("query_memory", "256MiB")]);
        assert_eq!(SessionSettings::memory(&lower).bytes, 256 << 20);
        assert!(
            SessionSettings::memory(&lower)
                .setting
                .contains("query_memory")
        );
        assert_eq!(shown(&lower, QUERY_MEMORY).as_deref(), Some("256.0 MiB"));
        let higher = config(&[("query_memory", "2GiB")]);
        assert_eq!(SessionSettings::memory(&higher), GATEWAY_MEMORY);
        assert_eq!(shown(&higher, QUERY_MEMORY).as_deref(), Some("1.0 GiB"));
    }

    #[test]
    fn a_timeout_of_the_session_is_one_only_if_it_is_not_zero() {
        let timeout = |value: &str| {
            let settings = [(STATEMENT_TIMEOUT.to_owned(), value.to_owned())];
            statement_timeout(&settings.into())
        };
        assert_eq!(timeout("250"), Some(Duration::from_millis(250)));
        assert_eq!(timeout("2 s"), Some(Duration::from_secs(2)));
        for none in ["0", "0s"] {
            assert_eq!(timeout(none), None, "{none}");
        }
        assert_eq!(statement_timeout(&HashMap::new()), None);
    }

    #[test]
    fn show_knows_a_setting_by_any_of_its_names() {
        for (written, full) in [
            ("SHOW statement_timeout", "SHOW volary statement_timeout"),
            (
                "SHOW Volary.Query_Memory VERBOSE",
                "SHOW volary query_memory VERBOSE",
            ),
            ("SHOW batch_size", "SHOW datafusion execution batch_size"),
            ("SHOW ALL", "SHOW ALL"),
            ("SHOW nothing", "SHOW nothing"),
        ] {
            let statement = match crate::sql::parse::parse(written).unwrap() {
                crate::sql::parse::Statement::Planned(statement) => *statement,
                other => panic!("{other:?}"),
            };
            assert_eq!(with_full_key(statement).to_string(), full);
        }
    }
}
