//! The handle of a prepared statement holds the statement and its bound parameters, sealed. So any
//! gateway accepts the handle, and nothing has to be closed. Nothing leaks when a driver prepares
//! the same statement five times.

use std::sync::Arc;

use arrow::datatypes::{DataType, Field, Schema, TimeUnit};
use arrow::record_batch::RecordBatch;
use arrow_flight::sql::{
    ActionCreatePreparedStatementRequest, ActionCreatePreparedStatementResult,
};
use arrow_flight::sql::{Any, DoPutPreparedStatementResult, ProstMessageExt};
use bytes::Bytes;
use prost::Message;
use volary_flight_proto::ids::QueryId;
use volary_flight_proto::ticket::PreparedStatementHandle;
use volary_flight_proto::{Result, ipc};

use super::FlightSql;
use super::call::ClientCall;
use super::command::refuse_transaction;
use super::statement::{ClientStatement, batch_to_bytes};
use crate::client_types::{TypeProfile, map_field, map_schema};
use crate::engine::StatementDescription;

/// Flight SQL's `ActionCreatePreparedStatementResult` with its newest field, which arrow-flight 59
/// does not know.
#[derive(Clone, PartialEq, Message)]
struct CreatePreparedStatementResult {
    #[prost(bytes = "bytes", tag = "1")]
    handle: Bytes,
    /// Encapsulated IPC schema of the rows. It has no fields if the statement has no rows: drivers
    /// then send the statement as an update. It is not left empty, because empty bytes crash ODBC.
    #[prost(bytes = "bytes", tag = "2")]
    dataset_schema: Bytes,
    /// Encapsulated IPC schema of the parameters.
    #[prost(bytes = "bytes", tag = "3")]
    parameter_schema: Bytes,
    #[prost(bool, optional, tag = "4")]
    is_update: Option<bool>,
}

impl FlightSql {
    /// Handles CreatePreparedStatement and returns the body of the answer.
    pub(super) async fn prepare(
        &self,
        call: &ClientCall,
        request: ActionCreatePreparedStatementRequest,
    ) -> Result<Bytes> {
        refuse_transaction(request.transaction_id.as_ref())?;
        let (id, session) = (QueryId::new(), &call.session.engine);
        let describing = self.engine.describe(session, &request.query, None, id);
        let describing = Box::pin(describing);
        let description = self
            .run_listed(call, id, &request.query, describing)
            .await?;
        let handle = PreparedStatementHandle {
            sql: request.query,
            parameters: None,
            user: call.principal.ticket_user().to_owned(),
        };
        let rows = description.rows.as_ref().map_or_else(
            || Arc::new(Schema::empty()),
            |rows| map_schema(call.profile, rows),
        );
        let result = CreatePreparedStatementResult {
            handle: self.tickets.seal_handle(&handle),
            dataset_schema: ipc::schema_to_bytes(&rows),
            parameter_schema: ipc::schema_to_bytes(&parameter_schema(call.profile, &description)),
            is_update: Some(description.rows.is_none()),
        };
        let any = Any {
            type_url: ActionCreatePreparedStatementResult::type_url().to_owned(),
            value: result.encode_to_vec().into(),
        };
        Ok(any.encode_to_vec().into())
    }

    /// Returns the statement of a handle, with the parameters that were bound to it.
    pub(super) fn prepared_statement(
        &self,
        call: &ClientCall,
        handle: &[u8],
    ) -> Result<ClientStatement> {
        let handle = self.tickets.open_handle(&call.principal, handle)?;
        Ok(ClientStatement {
            sql: handle.sql,
            parameters: handle.parameters,
        })
    }

    /// Binds a row of parameters and returns the body of the answer: a handle that holds the
    /// parameters. The answer always has a handle, because JDBC takes a missing handle for an empty
    /// one.
    pub(super) fn bind(
        &self,
        call: &ClientCall,
        handle: &[u8],
        row: Option<&RecordBatch>,
    ) -> Result<Bytes> {
        let bound = PreparedStatementHandle {
            parameters: row.map(batch_to_bytes).transpose()?,
            ..self.tickets.open_handle(&call.principal, handle)?
        };
        let result = DoPutPreparedStatementResult {
            prepared_statement_handle: Some(self.tickets.seal_handle(&bound)),
        };
        Ok(result.encode_to_vec().into())
    }
}

/// Returns a schema with a field for each parameter. JDBC converts values to the types of these
/// fields before it sends them. The fields are nullable, so that NULL can be sent. A parameter of
/// unknown type is text, because a field of type Null holds no values.
fn parameter_schema(profile: TypeProfile, description: &StatementDescription) -> Schema {
    let fields: Vec<_> = description
        .parameters
        .iter()
        .enumerate()
        .map(|(index, data_type)| {
            let data_type = match data_type {
                Some(DataType::Null) | None => DataType::Utf8,
                Some(data_type) => data_type.clone(),
            };
            let name = format!("${}", index + 1);
            let field = map_field(profile, &Field::new(name, data_type, true));
            match profile {
                TypeProfile::Classic => {
                    let data_type = convertible_type(field.data_type());
                    field.with_data_type(data_type)
                }
                TypeProfile::Native => field,
            }
        })
        .collect();
    Schema::new(fields)
}

/// Returns a type to which JDBC's converters can convert a value without changing it. The
/// converters cut integers to the width of the type, and they write a time in milliseconds whatever
/// the unit of the type is. If the type has a time zone, they write the time of day in the zone of
/// the JVM as if it were in UTC. So they are told a type without one, and the engine reads the time
/// in the zone of the session. They convert nothing to an interval, so they are told that it is a
/// text, such as `1 day`. The engine then casts the value to the parameter's own type, and
/// reports a value that does not fit.
fn convertible_type(data_type: &DataType) -> DataType {
    match data_type {
        DataType::Int8 | DataType::Int16 | DataType::Int32 => DataType::Int64,
        DataType::Float32 => DataType::Float64,
        DataType::Time32(_) | DataType::Time64(_) => DataType::Time32(TimeUnit::Millisecond),
        DataType::Timestamp(_, _) => DataType::Timestamp(TimeUnit::Millisecond, None),
        DataType::Interval(_) | DataType::Duration(_) => DataType::Utf8,
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_nullable_and_never_of_type_null() {
        let description = StatementDescription {
            rows: None,
            parameters: vec![
                Some(DataType::Utf8View),
                None,
                Some(DataType::Null),
                Some(DataType::UInt64),
                Some(DataType::UInt8),
                Some(DataType::Timestamp(TimeUnit::Nanosecond, None)),
                Some(DataType::Timestamp(
                    TimeUnit::Microsecond,
                    Some("UTC".into()),
                )),
            ],
        };
        let schema = parameter_schema(TypeProfile::Classic, &description);
        let types: Vec<_> = schema
            .fields()
            .iter()
            .map(|field| field.data_type().clone())
            .collect();
        assert_eq!(
            types,
            [
                DataType::Utf8,
                DataType::Utf8,
                DataType::Utf8,
                DataType::Decimal128(20, 0),
                DataType::Int64,
                DataType::Timestamp(TimeUnit::Millisecond, None),
                DataType::Timestamp(TimeUnit::Millisecond, None),
            ]
        );
        assert!(schema.fields().iter().all(|field| field.is_nullable()));
        assert_eq!(schema.field(3).name(), "$4");
        let native = parameter_schema(TypeProfile::Native, &description);
        assert_eq!(native.field(2).data_type(), &DataType::Utf8);
        assert_eq!(native.field(4).data_type(), &DataType::UInt8);
    }

    #[test]
    fn the_result_is_read_by_drivers_that_do_not_know_its_newest_field() {
        let result = CreatePreparedStatementResult {
            handle: Bytes::from_static(b"h"),
            dataset_schema: Bytes::from_static(b"d"),
            parameter_schema: Bytes::from_static(b"p"),
            is_update: Some(true),
        };
        let known =
            ActionCreatePreparedStatementResult::decode(result.encode_to_vec().as_slice()).unwrap();
        assert_eq!(known.prepared_statement_handle, "h");
        assert_eq!(known.dataset_schema, "d");
        assert_eq!(known.parameter_schema, "p");
    }
}
