//! Schemas and rows inside of messages, as Arrow IPC: see `flight-proto/src/ipc.rs`.
//!
//! Input: which of the two, and its bytes. What was read and written once is written again as bytes that are read as the same. (What was read
//! first may be another: a time zone without a name is read as none.)
#![no_main]

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use libfuzzer_sys::fuzz_target;
use volary_flight_proto::Result;
use volary_flight_proto::ipc::{
    batches_from_bytes, batches_to_bytes, schema_from_bytes, schema_to_bytes,
};

fuzz_target!(init: volary_fuzz::guard::start("ipc", volary_fuzz::seeds::nodes::ipc), |data: &[u8]| {
    match data.split_first() {
        Some((0, bytes)) => {
            if let Ok(schema) = schema_from_bytes(bytes) {
                let once = schema_from_bytes(&schema_to_bytes(&schema));
                let once = once.expect("what was encoded can be decoded");
                let again = schema_from_bytes(&schema_to_bytes(&once));
                assert_eq!(again.expect("what was encoded can be decoded"), once);
            }
        }
        Some((_, bytes)) => {
            if let Ok(read) = batches_from_bytes(bytes)
                && let Ok(once) = written_and_read(&read)
            {
                let again = written_and_read(&once);
                assert_eq!(again.expect("what was encoded can be encoded again"), once);
            }
        }
        None => {}
    }
});

type Stream = (SchemaRef, Vec<RecordBatch>);

/// An error if it cannot be written.
fn written_and_read((schema, batches): &Stream) -> Result<Stream> {
    let encoded = batches_to_bytes(schema, batches)?;
    Ok(batches_from_bytes(&encoded).expect("what was encoded can be decoded"))
}
