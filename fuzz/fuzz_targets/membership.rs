//! Fuzzes the messages of workers to a gateway: joins, leaves, checks before a join, and
//! introductions of clients that want rows from a worker.
//!
//! Input: a byte that chooses the message, and its content. The target seals the message. An
//! unsealed message must be refused.
#![no_main]

use arrow_flight::Action;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::codegen::http::HeaderMap;
use volary_flight_proto::direct::{INTRODUCE_ACTION, Introduction};
use volary_flight_proto::membership::{CHECK_ACTION, JOIN_ACTION, LEAVE_ACTION};
use volary_flight_proto::seal::Purpose;
use volary_fuzz::gateway::Gateway;
use volary_fuzz::seal::{Raw, VALID_FOR, sealer};

fuzz_target!(init: volary_fuzz::guard::start("membership", volary_fuzz::seeds::nodes::membership), |data: &[u8]| {
    let Some((what, message)) = data.split_first() else {
        return;
    };
    let act = |name: &str, body: &[u8]| {
        let action = Action::new(name, body.to_vec()).encode_to_vec();
        Gateway::open().call("DoAction", HeaderMap::new(), [action])
    };
    match what % 6 {
        0 => _ = act(JOIN_ACTION, &Raw::sealed(message, Purpose::Membership)),
        1 => _ = act(LEAVE_ACTION, &Raw::sealed(message, Purpose::Membership)),
        2 => _ = act(INTRODUCE_ACTION, &Raw::sealed(message, Purpose::Introduction)),
        3 => {
            // Seals the ticket in the message as well, so that the gateway reads its content.
            if let Ok(mut introduction) = Introduction::decode(message) {
                introduction.ticket = Raw::sealed(&introduction.ticket, Purpose::Direct);
                let sealed = sealer().seal(Purpose::Introduction, &introduction, VALID_FOR);
                act(INTRODUCE_ACTION, &sealed);
            }
        }
        5 => _ = act(CHECK_ACTION, &Raw::sealed(message, Purpose::Check)),
        _ => {
            for action in [JOIN_ACTION, LEAVE_ACTION, CHECK_ACTION, INTRODUCE_ACTION] {
                let refused = act(action, message);
                assert!(!refused.is_ok(), "{refused:?}");
            }
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 1)
});
