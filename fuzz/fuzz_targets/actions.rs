//! Fuzzes the actions that clients call at a gateway: session options, prepared statements,
//! cancellation and renewal.
//!
//! Input: the message of the action.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use tonic::codegen::http::HeaderMap;
use volary_fuzz::gateway::Gateway;

fuzz_target!(init: volary_fuzz::guard::start("actions", volary_fuzz::seeds::clients::actions), |data: &[u8]| {
    Gateway::open().call("DoAction", HeaderMap::new(), [data]);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 0)
});
