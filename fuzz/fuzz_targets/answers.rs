//! Fuzzes the answers of workers to a gateway that asks for rows: batches, and the frames with
//! them.
//!
//! Input: a byte that chooses the gateway's query, and a list of the messages that each of its
//! workers answers with.
#![no_main]

use arrow_flight::{FlightData, FlightDescriptor, FlightInfo};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_fuzz::gateway::GatewayWithStub;
use volary_fuzz::wire;

/// The queries make the gateway read plain rows, sorted rows, rows by bucket, and rows that other
/// workers have merged.
const QUERIES: [&str; 4] = [
    "SELECT k, s, d FROM t",
    "SELECT k, at FROM t ORDER BY at LIMIT 5",
    "SELECT s, count(*), sum(d) FROM t GROUP BY s",
    "SELECT count(*), min(s) FROM t WHERE flag",
];

fuzz_target!(init: volary_fuzz::guard::start("answers", volary_fuzz::seeds::nodes::answers), |data: &[u8]| {
    let Some((query, list)) = data.split_first() else {
        return;
    };
    let GatewayWithStub { gateway, stub, .. } = GatewayWithStub::get();
    let messages = wire::decode_list(list).into_iter();
    let messages = messages.filter_map(|message| FlightData::decode(message.as_slice()).ok());
    stub.answer(messages.collect());
    let descriptor = FlightDescriptor::new_cmd(QUERIES[usize::from(*query) % QUERIES.len()]);
    let planned = gateway.call("GetFlightInfo", HeaderMap::new(), [descriptor.encode_to_vec()]);
    let info = FlightInfo::decode(planned.messages[0].clone()).expect("it is planned");
    let ticket = info.endpoint[0].ticket.clone().expect("an endpoint has a ticket");
    gateway.call("DoGet", HeaderMap::new(), [ticket.encode_to_vec()]);
    stub.take_tickets();
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, 1)
});
