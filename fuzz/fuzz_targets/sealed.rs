//! Fuzzes the seals around everything that nodes and clients are given: see
//! `flight-proto/src/seal.rs`.
//!
//! Input: a purpose, a position and a plaintext. First, the whole input is opened as if it were
//! sealed, which must fail. Then the plaintext is sealed and must open unchanged. It must not open
//! if a bit is altered, if it is truncated or extended, for another purpose, or with another key.
#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use prost::Message;
use volary_flight_proto::ErrorCode;
use volary_flight_proto::seal::{Key, Sealer};
use volary_flight_proto::snapshot::Snapshot;
use volary_fuzz::seal::{PURPOSES, Raw, sealer};

fuzz_target!(init: volary_fuzz::guard::start("sealed", volary_fuzz::seeds::nodes::sealed), |data: &[u8]| {
    let sealer = sealer();
    for purpose in PURPOSES {
        assert!(sealer.open::<Raw>(purpose, data).is_err());
    }
    let Some(([purpose, place @ ..], plaintext)) = data.split_first_chunk::<5>() else {
        return;
    };
    let place = u32::from_le_bytes(*place) as usize;
    let purpose = PURPOSES[usize::from(*purpose) % PURPOSES.len()];
    let sealed = Raw::sealed(plaintext, purpose);

    let opened = sealer.open::<Snapshot>(purpose, &sealed);
    match (Snapshot::decode(plaintext), opened) {
        (Ok(sent), Ok(opened)) => assert_eq!(sent, opened),
        (Err(_), Err(error)) => assert_eq!(error.code(), ErrorCode::InvalidArgument),
        (sent, opened) => panic!("{sent:?} was sealed, {opened:?} opened"),
    }

    let mut altered = sealed.to_vec();
    let bit = place % (8 * altered.len());
    altered[bit / 8] ^= 1 << (bit % 8);
    let cut = &sealed[..place % sealed.len()];
    let longer: Bytes = [sealed.as_ref(), &[0]].concat().into();
    for wrong in [&altered[..], cut, &longer] {
        assert!(sealer.open::<Raw>(purpose, wrong).is_err());
    }
    let stranger = Sealer::new(Key::from_secret("another secret"));
    assert!(stranger.open::<Raw>(purpose, &sealed).is_err());
    for other in PURPOSES.into_iter().filter(|other| *other != purpose) {
        let error = sealer.open::<Raw>(other, &sealed).unwrap_err();
        assert_eq!(error.code(), ErrorCode::PermissionDenied);
    }
});
