//! Fuzzes the handles of prepared statements that a gateway gets from clients.
//!
//! Input: a byte that chooses what is done with the handle, and the content of the handle. The
//! target seals the handle. An unsealed handle must be refused.
#![no_main]

use arrow_flight::sql::{
    CommandPreparedStatementQuery, CommandPreparedStatementUpdate, ProstMessageExt,
};
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_flight_proto::seal::Purpose;
use volary_fuzz::gateway::Gateway;
use volary_fuzz::seal::Raw;

fuzz_target!(init: volary_fuzz::guard::start("handles", volary_fuzz::seeds::clients::handles), |data: &[u8]| {
    let Some((what, message)) = data.split_first() else {
        return;
    };
    let gateway = Gateway::open();
    let query = |prepared_statement_handle: Bytes| {
        let command = CommandPreparedStatementQuery { prepared_statement_handle };
        FlightDescriptor::new_cmd(command.as_any().encode_to_vec())
    };
    let call = |rpc: &str, message: Vec<u8>| gateway.call(rpc, HeaderMap::new(), [message]);
    // The message has no rows, so the bound parameters are those that the handle contains.
    let put = |descriptor: FlightDescriptor| FlightData::new().with_descriptor(descriptor).encode_to_vec();
    let sealed = Raw::sealed(message, Purpose::PreparedStatement);
    match what % 5 {
        0 => {
            let unsealed = query(Bytes::copy_from_slice(message));
            let refused = call("GetSchema", unsealed.encode_to_vec());
            assert!(!refused.is_ok(), "{refused:?}");
        }
        1 => _ = call("GetSchema", query(sealed).encode_to_vec()),
        2 => _ = call("GetFlightInfo", query(sealed).encode_to_vec()),
        3 => _ = call("DoPut", put(query(sealed))),
        _ => {
            let command = CommandPreparedStatementUpdate {
                prepared_statement_handle: sealed,
            };
            call("DoPut", put(FlightDescriptor::new_cmd(command.as_any().encode_to_vec())));
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 1)
});
