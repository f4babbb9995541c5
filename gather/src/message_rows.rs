use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use arrow_flight::FlightData;
use arrow_flight::utils::flight_data_to_arrow_batch;
use datafusion::arrow::array::RecordBatch;
use datafusion::arrow::datatypes::SchemaRef;
use volary_flight_proto::{Error, ErrorCode, Result};

const UNREADABLE: &str =
    "the rows that a worker has sent cannot be read; run the same release on all nodes";

/// Decodes the rows of a message in this schema. The message has no dictionaries.
///
/// # Errors
/// `INTERNAL` if the message cannot be read. arrow's reader trusts some lengths in the message and
/// panics if they are wrong; the panic is caught here.
pub fn decode_rows(message: &FlightData, schema: SchemaRef) -> Result<RecordBatch> {
    let read = || flight_data_to_arrow_batch(message, schema, &HashMap::new());
    match catch_unwind(AssertUnwindSafe(read)) {
        Ok(read) => {
            read.map_err(|source| Error::with_source(ErrorCode::Internal, UNREADABLE, source))
        }
        Err(_) => Err(Error::internal(UNREADABLE)),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use datafusion::arrow::array::{Int64Array, StringArray};
    use datafusion::arrow::datatypes::{DataType, Field, Schema};
    use volary_exec::client_rows::row_message;

    use super::*;

    #[test]
    fn a_message_that_is_cut_short_is_an_error() {
        let schema = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, false),
            Field::new("s", DataType::Utf8, true),
        ]));
        let numbers = Arc::new(Int64Array::from_iter_values(0..100));
        let texts = Arc::new(StringArray::from_iter((0..100).map(|_| Some("kea"))));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers, texts]).unwrap();
        let message = row_message(&batch).unwrap();
        assert_eq!(decode_rows(&message, Arc::clone(&schema)).unwrap(), batch);
        let code = |message: &FlightData| {
            decode_rows(message, Arc::clone(&schema))
                .unwrap_err()
                .code()
        };
        for kept in [0, 8, 800] {
            let mut cut = message.clone();
            cut.data_body.truncate(kept);
            assert_eq!(code(&cut), ErrorCode::Internal, "{kept}");
        }
        let mut headless = message.clone();
        headless.data_header.truncate(40);
        assert_eq!(code(&headless), ErrorCode::Internal);
    }
}
