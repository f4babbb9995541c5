//! Fuzzes the encoding of the messages of nodes and of sessions: see `flight-proto/src`.
//!
//! Input: a byte that chooses the message, and its encoding. A message that can be decoded must be
//! the same after it is encoded and decoded again.
#![no_main]

use std::fmt::Debug;

use libfuzzer_sys::{fuzz_mutator, fuzz_target};
use prost::Message;
use tonic::{Code, Status};
use volary_flight_proto::Error;
use volary_flight_proto::control::{
    Control, OptimizeResult, SegmentList, StorageState, WorkerReport,
};
use volary_flight_proto::direct::{DirectTicket, Introduced, Introduction};
use volary_flight_proto::fragment::{Fragment, Leaf, Parameter, Parameters};
use volary_flight_proto::frame::Frame;
use volary_flight_proto::ids::{ClusterId, QueryId, WriteId};
use volary_flight_proto::lookup::LookupRequest;
use volary_flight_proto::membership::{
    CheckAnswer, CheckRequest, JoinRequest, JoinResponse, LeaveRequest, LeaveResponse,
};
use volary_flight_proto::session::{
    CloseSessionResult, GetSessionOptionsResult, SessionClaims, SetSessionOptionsRequest,
    SetSessionOptionsResult,
};
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::ticket::{FragmentTicket, PreparedStatementHandle, QueryTicket};
use volary_flight_proto::write::{WriteRequest, WriteResult};

fuzz_target!(init: volary_fuzz::guard::start("messages", volary_fuzz::seeds::nodes::messages), |data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else {
        return;
    };
    match which % 32 {
        0 => {
            if let Some(ticket) = check_round_trip::<FragmentTicket>(bytes) {
                let _ids = (ticket.query_id(), ticket.fragment_id());
            }
        }
        1 => {
            if let Some(ticket) = check_round_trip::<QueryTicket>(bytes) {
                let _id = ticket.query_id.parse::<QueryId>();
            }
        }
        2 => _ = check_round_trip::<PreparedStatementHandle>(bytes),
        3 => _ = check_round_trip::<DirectTicket>(bytes),
        4 => _ = check_round_trip::<Introduction>(bytes),
        5 => _ = check_round_trip::<Introduced>(bytes),
        6 => {
            if let Some(control) = check_round_trip::<Control>(bytes) {
                let _id = control.cluster_id.parse::<ClusterId>().map(ClusterId::short);
            }
        }
        7 => _ = check_round_trip::<WorkerReport>(bytes),
        8 => _ = check_round_trip::<SegmentList>(bytes),
        9 => _ = check_round_trip::<JoinRequest>(bytes),
        10 => _ = check_round_trip::<JoinResponse>(bytes),
        11 => _ = check_round_trip::<LeaveRequest>(bytes),
        12 => _ = check_round_trip::<LeaveResponse>(bytes),
        13 => _ = check_round_trip::<WriteRequest>(bytes),
        14 => _ = check_round_trip::<WriteResult>(bytes),
        15 => {
            if let Some(snapshot) = check_round_trip::<Snapshot>(bytes) {
                let _sees = snapshot.sees(WriteId(snapshot.high));
            }
        }
        16 => _ = check_round_trip::<Fragment>(bytes),
        17 => _ = check_round_trip::<Parameters>(bytes),
        18 => _ = check_round_trip::<Leaf>(bytes),
        19 => _ = check_round_trip::<Parameter>(bytes),
        20 => _ = check_round_trip::<Frame>(bytes),
        21 => _ = check_round_trip::<SessionClaims>(bytes),
        22 => _ = check_round_trip::<SetSessionOptionsRequest>(bytes),
        23 => _ = check_round_trip::<SetSessionOptionsResult>(bytes),
        24 => _ = check_round_trip::<GetSessionOptionsResult>(bytes),
        25 => _ = check_round_trip::<CloseSessionResult>(bytes),
        26 => _ = check_round_trip::<OptimizeResult>(bytes),
        27 => _ = check_round_trip::<StorageState>(bytes),
        28 => _ = check_round_trip::<CheckRequest>(bytes),
        29 => _ = check_round_trip::<CheckAnswer>(bytes),
        30 => check_error(bytes),
        _ => _ = check_round_trip::<LookupRequest>(bytes),
    }
});

fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    volary_fuzz::wire::mutate(data, size, max_size, seed, 1)
});

fn check_round_trip<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let encoded = message.encode_to_vec();
    assert_eq!(encoded.len(), message.encoded_len());
    let again = M::decode(encoded.as_slice()).expect("what was encoded can be decoded");
    // A message with NaN is not equal to itself.
    #[expect(clippy::eq_op, reason = "a message with NaN in it differs from itself")]
    let has_nan = message != message;
    assert!(has_nan || again == message, "{message:?} became {again:?}");
    Some(message)
}

/// Decodes an error of another node and passes it on. Its code must stay the same.
fn check_error(bytes: &[u8]) {
    let Some((code, text)) = bytes.split_first() else {
        return;
    };
    let text = String::from_utf8_lossy(text).into_owned();
    let mut status = Status::new(Code::from(i32::from(*code)), text);
    let pushback = status.message().lines().next().unwrap_or_default().parse();
    if let Ok(pushback) = pushback {
        status
            .metadata_mut()
            .insert("grpc-retry-pushback-ms", pushback);
    }
    let error = Error::from(status).at("a worker");
    let handed_on = Status::from(error);
    let again = Error::from(handed_on.clone());
    assert_eq!(Status::from(again).code(), handed_on.code());
}
