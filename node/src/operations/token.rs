use std::path::Path;

use volary_flight_proto::{Error, ErrorCode, Result};

const SCHEME: &str = "Bearer ";

/// Reads the token that `/metrics` asks for. May block.
pub(super) fn read(file: &Path) -> Result<String> {
    let named = || format!("operations.token_file, {}", file.display());
    let token = std::fs::read_to_string(file)
        .map_err(|source| Error::io(format!("cannot read {}", named()), source))?;
    let token = token.trim();
    if token.is_empty() {
        return Err(Error::invalid(format!(
            "{} is empty; write the token that monitoring systems show",
            named()
        )));
    }
    Ok(token.to_owned())
}

/// Checks the header `authorization` of a request against the token.
pub(super) fn check(header: Option<&str>, token: &str) -> Result<()> {
    let shown = header.and_then(|header| header.strip_prefix(SCHEME));
    // Hashes are compared in constant time, so that the token cannot be guessed piece by piece.
    match shown {
        Some(shown) if blake3::hash(shown.as_bytes()) == blake3::hash(token.as_bytes()) => Ok(()),
        _ => Err(Error::new(
            ErrorCode::Unauthenticated,
            "show the token of operations.token_file: Authorization: Bearer …",
        )),
    }
}
