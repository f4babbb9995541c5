//! SET and RESET.

use std::collections::HashMap;

use datafusion::arrow::array::timezone::Tz;
use datafusion::prelude::SessionConfig;
use datafusion::sql::planner::NullOrdering;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::config::MAX_TARGET_PARTITIONS;

/// What a session may set, by DataFusion's key. Other settings belong to the operator, or would break what the cut into
/// fragments relies on.
const ALLOWED: [&str; 6] = [
    "datafusion.execution.time_zone",
    "datafusion.execution.batch_size",
    "datafusion.execution.target_partitions",
    "datafusion.sql_parser.default_null_ordering",
    "datafusion.sql_parser.parse_float_as_decimal",
    "datafusion.explain.show_statistics",
];

/// The full key of a setting, by any of its names.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the settings that there are.
pub(super) fn key(name: &str) -> Result<&'static str> {
    let name = name.to_lowercase();
    let name = match name.as_str() {
        "timezone" | "time.zone" | "time_zone" => "datafusion.execution.time_zone",
        other => other,
    };
    ALLOWED
        .into_iter()
        .find(|allowed| *allowed == name || allowed.rsplit('.').next() == Some(name))
        .ok_or_else(|| {
            Error::invalid(format!(
                "there is no session setting {name}; there are {}",
                ALLOWED.join(", ")
            ))
        })
}

/// Applies a session's settings.
///
/// # Errors
/// `INVALID_ARGUMENT` for a value that a setting does not take.
pub(super) fn apply(config: &mut SessionConfig, settings: &HashMap<String, String>) -> Result<()> {
    for (name, value) in settings {
        // A ticket may come from a gateway of another version, with settings that this one does not have.
        let Ok(key) = key(name) else { continue };
        check_limits(key, value)?;
        config.options_mut().set(key, value).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("setting {key} does not take \"{value}\""),
                source,
            )
        })?;
    }
    Ok(())
}

/// Whether a setting takes the value.
///
/// # Errors
/// `INVALID_ARGUMENT` if it does not.
pub(super) fn check(key: &str, value: &str) -> Result<()> {
    let mut trial = SessionConfig::new();
    apply(&mut trial, &[(key.to_owned(), value.to_owned())].into())
}

/// What DataFusion would take, and mend without a word or fail with later.
fn check_limits(key: &str, value: &str) -> Result<()> {
    if key == "datafusion.execution.time_zone" {
        return match value.parse::<Tz>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid(format!(
                "there is no time zone \"{value}\"; it is a name such as Europe/Berlin, or an offset such as +02:00"
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
    let number = value.parse::<usize>();
    let limit = match key {
        // One would make the planner collect the left side of every join.
        "datafusion.execution.target_partitions" => 2..=MAX_TARGET_PARTITIONS,
        "datafusion.execution.batch_size" => 1..=1 << 20,
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
    use super::*;

    #[test]
    fn every_setting_is_found_by_its_short_name_and_takes_its_default() {
        let defaults: HashMap<String, Option<String>> = SessionConfig::new()
            .options()
            .entries()
            .into_iter()
            .map(|entry| (entry.key, entry.value))
            .collect();
        for allowed in ALLOWED {
            let short = allowed.rsplit('.').next().unwrap();
            assert_eq!(key(short).unwrap(), allowed);
            assert_eq!(key(&allowed.to_uppercase()).unwrap(), allowed);
            // The default of the number of partitions is the machine's number of cores, which may be too small.
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
        ] {
            let error = check(key(name).unwrap(), value).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument);
            assert!(error.message().contains(value), "{error}");
        }
    }
}
