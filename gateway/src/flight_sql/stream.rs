//! From a query's rows to the messages that a client is sent.

use futures::stream::{self, TryStreamExt};
use volary_flight_proto::Error;
use volary_node::client_rows::{client_messages, client_rows};

use super::types::{Profile, map_schema};
use crate::engine::Query;
use crate::statements::Noted;
use volary_node::client_rows::ClientMessages;

/// The rows of a query. It is started when the stream is first polled, after the schema was sent; dropping the stream ends it.
pub(super) fn query_messages(query: Query, profile: Profile, noted: Noted) -> ClientMessages {
    let id = query.id;
    let schema = query.schema.clone();
    let announced = map_schema(profile, &schema);
    let target = announced.clone();
    let rows = stream::once(Box::pin(query.start(noted.clone())))
        .map_ok(move |rows| client_rows(rows, schema.clone(), target.clone()))
        .try_flatten()
        .inspect_ok(move |batch| noted.add_rows(batch.num_rows()))
        .map_err(move |error| with_query(error, id));
    client_messages(announced, rows)
}

/// An error of a query says which one.
pub(super) fn with_query(error: Error, id: impl std::fmt::Display) -> Error {
    let id = id.to_string();
    if error.message().contains(&id) {
        error
    } else {
        error.at(format_args!("query {id}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_query_is_said_once() {
        let error = with_query(with_query(Error::invalid("division by zero"), "q1"), "q1");
        assert_eq!(error.message(), "query q1: division by zero");
    }
}
