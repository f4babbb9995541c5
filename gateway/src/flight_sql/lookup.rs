//! A LookupRequest asks for the rows of keys, which follow in batches.

use volary_flight_proto::lookup::LookupRequest;
use volary_flight_proto::{Error, Result};

use crate::engine::lookup_stream::LookupTarget;
use crate::sql::names::{WrittenName, check_catalog};

/// Returns the text that is listed as the statement while a stream of lookups is open.
pub(super) fn stream_text(target: &LookupTarget) -> String {
    format!("LOOKUP STREAM FROM {}", target.table)
}

/// Reads a request.
///
/// # Errors
/// `INVALID_ARGUMENT` for a request without a table. `NOT_FOUND` for another catalog.
pub(super) fn parse_request(request: LookupRequest) -> Result<LookupTarget> {
    if request.table.is_empty() {
        return Err(Error::invalid(
            "the lookup names no table; name the table of the keys",
        ));
    }
    let is_named = |name: &String| !name.is_empty();
    if let Some(catalog) = request.catalog.filter(is_named) {
        check_catalog(&catalog)?;
    }
    Ok(LookupTarget {
        table: WrittenName::new(request.schema.filter(is_named), request.table),
        columns: request.columns,
        one_snapshot: request.one_snapshot,
    })
}

#[cfg(test)]
mod tests {
    use volary_flight_proto::ErrorCode;

    use super::*;

    #[test]
    fn a_request_is_read_and_what_it_cannot_mean_is_refused() {
        let request = LookupRequest {
            table: "birds".to_owned(),
            schema: Some("nests".to_owned()),
            catalog: Some("volary".to_owned()),
            columns: vec!["name".to_owned()],
            one_snapshot: true,
        };
        let target = parse_request(request.clone()).unwrap();
        assert_eq!(stream_text(&target), "LOOKUP STREAM FROM nests.birds");
        assert_eq!(target.columns, ["name"]);
        assert!(target.one_snapshot);
        let code = |request| parse_request(request).unwrap_err().code();
        let nameless = LookupRequest {
            table: String::new(),
            ..request.clone()
        };
        assert_eq!(code(nameless), ErrorCode::InvalidArgument);
        let elsewhere = LookupRequest {
            catalog: Some("moon".to_owned()),
            ..request
        };
        assert_eq!(code(elsewhere), ErrorCode::NotFound);
    }
}
