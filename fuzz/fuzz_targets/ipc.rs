//! Fuzzes schemas and rows that are contained in messages, as Arrow IPC: see
//! `flight-proto/src/ipc.rs`.
//!
//! Input: a byte that chooses between the two, and the encoded bytes. The result of one round trip
//! must stay the same in a second one. The first may change the input: for example, a time zone
//! without a name becomes no time zone.
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
                && let Ok(once) = round_trip(&read)
            {
                let again = round_trip(&once);
                assert_eq!(again.expect("what was encoded can be encoded again"), once);
            }
        }
        None => {}
    }
});

type Stream = (SchemaRef, Vec<RecordBatch>);

/// Encodes the rows and decodes them again. Returns an error if they cannot be encoded.
fn round_trip((schema, batches): &Stream) -> Result<Stream> {
    let encoded = batches_to_bytes(schema, batches)?;
    Ok(batches_from_bytes(&encoded).expect("what was encoded can be decoded"))
}
