//! Fuzzes the other calls of a worker: commands, rows to store, and the tickets of clients.
//!
//! Input: a byte that chooses the call, and its content. The target seals the content. An unsealed
//! message must be refused.
#![no_main]

use std::sync::atomic::{AtomicU64, Ordering};

use arrow_flight::{Action, FlightData, FlightDescriptor, Ticket};
use bytes::Bytes;
use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use volary_flight_proto::control::{AbortWrite, CONTROL_ACTION, Control, control};
use volary_flight_proto::direct::DirectTicket;
use volary_flight_proto::fragment::FragmentId;
use volary_flight_proto::seal::Purpose;
use volary_flight_proto::write::{DESCRIPTOR_LIFETIME, WriteRequest};
use volary_fuzz::seal::{Raw, VALID_FOR, sealer};
use volary_fuzz::wire;
use volary_fuzz::worker::{INSTANCE, Worker};

/// Number of tables that writes go to. It is small, so that few directories are created.
const TABLES: u64 = 8;

/// Number of the next write. Each write is aborted, and its number is not used again. The numbers
/// of streams are not used again either.
static NEXT_WRITE: AtomicU64 = AtomicU64::new(1_000);
static NEXT_STREAM: AtomicU64 = AtomicU64::new(0);

fuzz_target!(init: volary_fuzz::guard::start("worker_calls", volary_fuzz::seeds::nodes::worker_calls), |data: &[u8]| {
    let Some((what, message)) = data.split_first() else {
        return;
    };
    let worker = Worker::get();
    match what % 4 {
        0 => {
            let command = Control::decode(message).ok().and_then(|control| control.command);
            if let Some(command) = command {
                worker.call("DoAction", [worker.control(command)]);
            }
        }
        1 => write(worker, message),
        2 => {
            let Ok(mut ticket) = DirectTicket::decode(message) else {
                return;
            };
            if let Some(part) = &mut ticket.part {
                (part.cluster, part.worker_id) = (worker.cluster.short(), worker.id.0);
                let fragment = part.fragment.as_deref().unwrap_or_default();
                part.fragment_id = FragmentId::of(fragment).to_bytes();
            }
            let sealed = sealer().seal(Purpose::Direct, &ticket, VALID_FOR);
            worker.call("DoGet", [Ticket::new(sealed).encode_to_vec()]);
        }
        _ => {
            let ticket = Ticket::new(message.to_vec());
            let refused = worker.call("DoGet", [ticket.encode_to_vec()]);
            assert!(!refused.is_ok(), "{refused:?}");
            let action = Action::new(CONTROL_ACTION, message.to_vec());
            let refused = worker.call("DoAction", [action.encode_to_vec()]);
            assert!(!refused.is_ok(), "{refused:?}");
        }
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    wire::mutate(data, size, max_size, seed, 1)
});

/// Writes rows. `list` has the write request and then the messages with the rows.
fn write(worker: &Worker, list: &[u8]) {
    let mut messages = wire::decode_list(list);
    if messages.len() < 2 {
        return;
    }
    let sealed = match WriteRequest::decode(messages.remove(0).as_slice()) {
        Ok(request) => sealed_request(worker, request),
        Err(_) => Raw::sealed(list, Purpose::Write),
    };
    let Ok(first) = FlightData::decode(messages[0].as_slice()) else {
        return;
    };
    let descriptor = FlightDescriptor::new_cmd(sealed);
    messages[0] = first.with_descriptor(descriptor).encode_to_vec();
    if worker.call("DoPut", messages).is_ok() {
        let write_id = NEXT_WRITE.fetch_add(1, Ordering::Relaxed);
        let abort = control::Command::AbortWrite(AbortWrite { write_id });
        worker.call("DoAction", [worker.control(abort)]);
    }
}

fn sealed_request(worker: &Worker, mut request: WriteRequest) -> Bytes {
    request.worker_id = worker.id.0;
    request.cluster_id = worker.cluster.to_string();
    INSTANCE.clone_into(&mut request.instance);
    request.write_id = NEXT_WRITE.load(Ordering::Relaxed);
    request.stream_id = NEXT_STREAM.fetch_add(1, Ordering::Relaxed).to_string();
    if let Some(table) = &mut request.table {
        table.table_id = 100 + table.table_id % TABLES;
    }
    sealer().seal(Purpose::Write, &request, DESCRIPTOR_LIFETIME)
}
