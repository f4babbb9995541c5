//! Fuzzes the planning of a statement on a gateway: tables, views and saved queries are resolved,
//! and DataFusion plans the statement. Queries do not run, and the catalog is not changed.
//!
//! Input: the text.
#![no_main]

use arrow_flight::FlightDescriptor;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_fuzz::gateway::Gateway;

fuzz_target!(init: volary_fuzz::guard::start("statements", volary_fuzz::seeds::statements::texts), |data: &[u8]| {
    if std::str::from_utf8(data).is_ok() {
        let descriptor = FlightDescriptor::new_cmd(data.to_vec());
        Gateway::open().call("GetFlightInfo", HeaderMap::new(), [descriptor.encode_to_vec()]);
    }
});
