//! Fuzzes what a worker runs: fragments, their parameters, and the tickets that contain them.
//!
//! Input: a ticket. The target addresses the ticket to the worker, names the fragment by its hash,
//! and seals the ticket, so that the worker reads its content. The addresses of other workers in
//! the ticket are replaced by one where nobody listens.
#![no_main]

use arrow_flight::Ticket;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::ticket::FragmentTicket;
use volary_fuzz::gateway::UNREACHABLE_ADDRESS;
use volary_fuzz::seal::{VALID_FOR, sealer};
use volary_fuzz::worker::Worker;

fuzz_target!(init: volary_fuzz::guard::start("fragments", volary_fuzz::seeds::fragments::all), |data: &[u8]| {
    let Ok(mut ticket) = FragmentTicket::decode(data) else {
        return;
    };
    let worker = Worker::get();
    (ticket.cluster, ticket.worker_id) = (worker.cluster.short(), worker.id.0);
    if let Some(fragment) = &ticket.fragment {
        ticket.fragment_id = FragmentId::of(fragment).to_bytes();
    }
    for member in &mut ticket.members {
        UNREACHABLE_ADDRESS.clone_into(&mut member.address);
    }
    let sealed = sealer().seal(Purpose::Fragment, &ticket, VALID_FOR);
    worker.call("DoGet", [Ticket::new(sealed).encode_to_vec()]);
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 0)
});
