//! Makes the rows of system.saved_queries.

use arrow::array::RecordBatch;
use volary_catalog::access::Rights;
use volary_catalog::{State, listed};
use volary_flight_proto::Result;

use super::access::times;
use super::kind::Kind;
use super::rows::{batch, optional_texts, texts};

/// Returns the rows of system.saved_queries: the saved queries that a user with these rights may
/// see.
pub(super) fn rows(catalog: &State, by: &Rights) -> Result<RecordBatch> {
    let queries = catalog.views().filter(|view| view.is_query());
    let all: Vec<_> = queries
        .filter(|query| by.sees(query.name(), query.owner()))
        .collect();
    let parameters = all.iter().map(|query| {
        let parameters = query.parameters().unwrap_or_default();
        (!parameters.is_empty()).then(|| listed(parameters))
    });
    batch(
        Kind::SavedQueries,
        vec![
            texts(all.iter().map(|query| query.name())),
            optional_texts(parameters),
            texts(all.iter().map(|query| query.sql())),
            optional_texts(all.iter().map(|query| query.owner().map(str::to_owned))),
            times(all.iter().map(|query| Some(query.created_at_ms()))),
        ],
    )
}
