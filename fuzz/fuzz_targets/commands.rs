//! Fuzzes the requests of clients to a gateway: descriptors with Flight SQL messages, with SQL or
//! with a path, the descriptor of a polled query, and the criteria of ListFlights.
//!
//! Input: a byte that chooses the call, and its message.
#![no_main]

use arrow_flight::sql::Any;
use arrow_flight::{FlightDescriptor, FlightInfo};
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_fuzz::gateway::Gateway;

fuzz_target!(init: volary_fuzz::guard::start("commands", volary_fuzz::seeds::clients::commands), |data: &[u8]| {
    let Some((what, message)) = data.split_first() else {
        return;
    };
    let gateway = Gateway::open();
    let mut headers = HeaderMap::new();
    match what % 5 {
        0 => _ = gateway.call("GetSchema", headers, [message]),
        1 => _ = gateway.call("ListFlights", headers, [message]),
        2 => {
            // Builds the descriptor that the gateway gives to a client that polls.
            let any = Any {
                type_url: "type.googleapis.com/volary.PollQuery".to_owned(),
                value: message.to_vec().into(),
            };
            let descriptor = FlightDescriptor::new_cmd(any.encode_to_vec());
            gateway.call("PollFlightInfo", headers, [descriptor.encode_to_vec()]);
        }
        types => {
            if types == 4 {
                headers.insert("volary-types", "native".parse().expect("a value"));
            }
            let answer = gateway.call("GetFlightInfo", headers, [message]);
            let info = answer.messages.into_iter().next();
            let info = info.and_then(|info| FlightInfo::decode(info).ok());
            let endpoint = info.and_then(|info| info.endpoint.into_iter().next());
            if let Some(ticket) = endpoint.and_then(|endpoint| endpoint.ticket) {
                gateway.call("DoGet", HeaderMap::new(), [ticket.encode_to_vec()]);
            }
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 1)
});
