use std::str::FromStr;

use tonic::metadata::MetadataMap;
use volary_flight_proto::{Error, Result};

/// Returns whether an on/off option is on.
///
/// # Errors
/// `INVALID_ARGUMENT` if the text is none of `on`, `true`, `off` and `false`.
pub(super) fn is_on(option: &str, text: &str) -> Result<bool> {
    match text {
        "on" | "true" => Ok(true),
        "off" | "false" => Ok(false),
        _ => Err(Error::invalid(format!(
            "{option} is \"{text}\"; write on or off"
        ))),
    }
}

/// Returns the value of an option that the client sets with a header of the call, or `None` if the
/// header is missing.
pub(super) fn option_header<T: FromStr<Err = Error>>(
    metadata: &MetadataMap,
    name: &'static str,
) -> Result<Option<T>> {
    let Some(value) = metadata.get(name) else {
        return Ok(None);
    };
    let text = value
        .to_str()
        .map_err(|_| Error::invalid(format!("the header {name} is not text")))?;
    text.parse().map(Some)
}
