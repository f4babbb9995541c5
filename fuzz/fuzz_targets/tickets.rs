//! Fuzzes the tickets of queries and of their parts that a gateway gets from clients. The tickets
//! are redeemed, renewed and cancelled.
//!
//! Input: a byte that chooses what is done with the ticket, and the content of the ticket. The
//! target seals the ticket. An unsealed ticket must be refused.
#![no_main]

use arrow_flight::{
    Action, CancelFlightInfoRequest, FlightEndpoint, FlightInfo, RenewFlightEndpointRequest, Ticket,
};
use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_flight_proto::seal::Purpose;
use volary_fuzz::gateway::Gateway;
use volary_fuzz::seal::Raw;

fuzz_target!(init: volary_fuzz::guard::start("tickets", volary_fuzz::seeds::clients::tickets), |data: &[u8]| {
    let Some((what, message)) = data.split_first() else {
        return;
    };
    let gateway = Gateway::open();
    let redeem = |ticket: Bytes| {
        let ticket = Ticket { ticket };
        gateway.call("DoGet", HeaderMap::new(), [ticket.encode_to_vec()])
    };
    let act = |name: &str, body: Vec<u8>| {
        let action = Action::new(name, body).encode_to_vec();
        gateway.call("DoAction", HeaderMap::new(), [action]);
    };
    let purpose = if what & 1 == 0 { Purpose::Query } else { Purpose::Direct };
    let sealed = Raw::sealed(message, purpose);
    let endpoint = FlightEndpoint::new().with_ticket(Ticket::new(sealed.clone()));
    match (what >> 1) % 4 {
        0 => {
            let refused = redeem(Bytes::copy_from_slice(message));
            assert!(!refused.is_ok(), "{refused:?}");
        }
        1 => {
            let renew = RenewFlightEndpointRequest {
                endpoint: Some(endpoint),
            };
            act("RenewFlightEndpoint", renew.encode_to_vec());
        }
        2 => {
            let info = FlightInfo::new().with_endpoint(endpoint);
            let cancel = CancelFlightInfoRequest::new(info);
            act("CancelFlightInfo", cancel.encode_to_vec());
        }
        _ => _ = redeem(sealed),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 1)
});
