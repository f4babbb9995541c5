use std::sync::{Arc, OnceLock};

use arrow::datatypes::{Schema, SchemaRef};
use arrow_flight::FlightData;
use volary_exec::client_rows::schema_message;
use volary_flight_proto::{Error, ErrorCode, Result, ipc};
use volary_gather::announced_schema::AnnouncedSchema;

use super::{TypeProfile, map_schema};

/// The schema of a query's rows in the form that a client is sent.
#[derive(Debug, Clone)]
pub(crate) struct ClientSchema {
    /// The message that the client is sent before the rows.
    pub(crate) message: FlightData,
    /// The schema that the client decodes from the message. It has no dictionaries.
    pub(crate) decoded: SchemaRef,
    /// The schema for workers whose messages are passed on to the client.
    pub(crate) announced: AnnouncedSchema,
}

impl ClientSchema {
    fn new(profile: TypeProfile, rows: &Schema) -> Result<Self> {
        let mapped = map_schema(profile, rows);
        let schema = ipc::schema_to_bytes(&mapped);
        let message = schema_message(mapped)?;
        let decoded = Schema::try_from(&message).map_err(|source| {
            let text = "the schema of the rows cannot be encoded";
            Error::with_source(ErrorCode::Internal, text, source)
        })?;
        let header = message.data_header.clone();
        Ok(Self {
            message,
            decoded: Arc::new(decoded),
            announced: AnnouncedSchema { schema, header },
        })
    }
}

/// The schemas of the rows of one query, one for each profile. Each is made when it is first asked
/// for. All queries of a generic plan share them, because making one takes as long as binding the
/// plan's parameters.
#[derive(Debug, Default)]
pub(crate) struct ClientSchemas {
    classic: OnceLock<ClientSchema>,
    native: OnceLock<ClientSchema>,
}

impl ClientSchemas {
    /// Returns the schema for clients of this profile. `rows` is the schema of the query's rows.
    ///
    /// # Errors
    /// `INTERNAL` if the schema cannot be encoded.
    pub(crate) fn get(&self, profile: TypeProfile, rows: &Schema) -> Result<&ClientSchema> {
        let made = match profile {
            TypeProfile::Classic => &self.classic,
            TypeProfile::Native => &self.native,
        };
        if let Some(schema) = made.get() {
            return Ok(schema);
        }
        let schema = ClientSchema::new(profile, rows)?;
        Ok(made.get_or_init(|| schema))
    }
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};

    use super::*;

    #[test]
    fn each_profile_has_a_schema_that_is_made_once() {
        let rows = Schema::new(vec![Field::new("name", DataType::Utf8View, true)]);
        let schemas = ClientSchemas::default();
        let classic = schemas.get(TypeProfile::Classic, &rows).unwrap();
        let native = schemas.get(TypeProfile::Native, &rows).unwrap();
        assert_eq!(classic.decoded.field(0).data_type(), &DataType::Utf8);
        assert_eq!(native.decoded.field(0).data_type(), &DataType::Utf8View);
        assert_eq!(classic.announced.header, classic.message.data_header);
        let sent = ipc::schema_from_bytes(&classic.announced.schema).unwrap();
        assert_eq!(sent, *classic.decoded);
        let again = schemas.get(TypeProfile::Classic, &rows).unwrap();
        assert!(std::ptr::eq(classic, again));
    }
}
