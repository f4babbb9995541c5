//! SET and RESET.

use std::collections::HashMap;

use datafusion::arrow::array::timezone::Tz;
use datafusion::prelude::SessionConfig;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::config::MAX_TARGET_PARTITIONS;

/// What a session may set, by DataFusion's key. Other settings belong to the operator, or would break what the cut into
/// fragments relies on.
const ALLOWED: [&str; 7] = [
    "datafusion.execution.time_zone",
    "datafusion.execution.batch_size",
    "datafusion.execution.target_partitions",
    "datafusion.sql_parser.default_null_ordering",
    "datafusion.sql_parser.enable_ident_normalization",
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
        // Settings of the Flight SQL surface travel with the session too; they are not the planner's.
        let Ok(key) = key(name) else { continue };
        check(key, value)?;
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

fn check(key: &str, value: &str) -> Result<()> {
    if key == "datafusion.execution.time_zone" {
        return match value.parse::<Tz>() {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::invalid(format!(
                "there is no time zone \"{value}\"; it is a name such as Europe/Berlin, or an offset such as +02:00"
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
