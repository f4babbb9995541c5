use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::{BufMut, Bytes, BytesMut};
use prost::Message;
use rand::RngCore;

use crate::error::{Error, ErrorCode, Result};

const MAGIC: [u8; 2] = *b"VL";
const VERSION: u8 = 2;
/// Length of the MAC. 128 bits cannot be guessed. The MAC is no longer than that, because thousands
/// of tickets of one query carry one.
const MAC_BYTES: usize = 16;
/// Length of the magic, the version, the purpose and the expiry (seconds since 1970, big-endian).
const HEADER_BYTES: usize = 2 + 1 + 1 + 8;

/// The only use of a sealed message. For example, a ticket cannot be replayed as a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Purpose {
    /// A fragment that a worker runs (DoGet).
    Fragment = 1,
    /// Rows that a worker stores (DoPut).
    Write = 2,
    /// A small command to a worker (DoAction).
    Control = 3,
    /// A message of a worker to its gateway.
    Membership = 4,
    /// The rows of a query, redeemed at a gateway (DoGet).
    Query = 5,
    /// A prepared statement.
    PreparedStatement = 6,
    /// A user's session.
    Session = 7,
    /// A worker's part of a query's rows, which a client fetches from that worker or from a gateway
    /// (DoGet).
    Direct = 8,
    /// A worker's question to a gateway about a client.
    Introduction = 9,
    /// A header by which a node shows that it belongs to the cluster.
    Node = 10,
    /// A gateway's answer to a message of a worker. It has a purpose of its own: otherwise a worker
    /// would take its own message for the answer if somebody sent it back.
    MembershipAnswer = 11,
    /// A gateway's answer to a worker's question about a client.
    IntroductionAnswer = 12,
    /// A question of `volary doctor` to a gateway. It has a purpose of its own, because it is valid
    /// for long: otherwise it could be sent again as another message.
    Check = 13,
    /// A gateway's answer to such a question.
    CheckAnswer = 14,
}

impl Purpose {
    fn description(self) -> &'static str {
        match self {
            Self::Fragment => "fragment ticket",
            Self::Write => "write descriptor",
            Self::Control => "control command",
            Self::Membership => "membership message",
            Self::Query => "ticket",
            Self::PreparedStatement => "prepared statement handle",
            Self::Session => "session token",
            Self::Direct => "ticket for a part of the rows",
            Self::Introduction => "introduction",
            Self::Node => "node header",
            Self::MembershipAnswer => "answer of a gateway",
            Self::IntroductionAnswer => "answer about a client",
            Self::Check => "check of a node",
            Self::CheckAnswer => "answer about a gateway",
        }
    }
}

/// A key that seals messages. Whoever holds the key that a cluster's nodes share can run fragments
/// on the workers.
#[derive(Clone)]
pub struct Key([u8; 32]);

impl Key {
    /// Derives a key from a cluster's configured secret (any text). The secret itself is never used
    /// as a key.
    pub fn from_secret(secret: &str) -> Self {
        Self(blake3::derive_key(
            "volary 2026-11 sealed messages v1",
            secret.as_bytes(),
        ))
    }

    /// Creates a new key from the operating system's randomness.
    pub fn random() -> Self {
        let mut key = [0; 32];
        rand::rng().fill_bytes(&mut key);
        Self(key)
    }

    /// Returns the raw bytes, for the catalog of a gateway that made its own key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Key {
    fn from(key: [u8; 32]) -> Self {
        Self(key)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(…)") // a key never reaches a log
    }
}

/// Seals and opens messages.
///
/// Layout: magic `VL`, version (1 byte), purpose (1 byte), expiry (8 bytes, seconds since 1970,
/// big-endian), protobuf payload, and the first 16 bytes of the BLAKE3 keyed hash of all bytes
/// before it. The payload is not encrypted.
#[derive(Debug, Clone)]
pub struct Sealer {
    key: Key,
}

impl Sealer {
    /// Creates a sealer with this key.
    pub fn new(key: Key) -> Self {
        Self { key }
    }

    /// Seals `message` so that it opens for `purpose`, for `valid_for` from now on (up to two
    /// seconds longer, because the expiry counts whole seconds).
    pub fn seal(&self, purpose: Purpose, message: &impl Message, valid_for: Duration) -> Bytes {
        let expiry = now_s()
            .saturating_add(valid_for.as_secs())
            .saturating_add(1);
        self.seal_until(purpose, message, expiry)
    }

    fn seal_until(&self, purpose: Purpose, message: &impl Message, expiry_s: u64) -> Bytes {
        let mut out = BytesMut::with_capacity(HEADER_BYTES + message.encoded_len() + MAC_BYTES);
        out.put_slice(&MAGIC);
        out.put_u8(VERSION);
        out.put_u8(purpose as u8);
        out.put_u64(expiry_s);
        out.put_slice(&message.encode_to_vec());
        let mac = blake3::keyed_hash(&self.key.0, &out);
        out.put_slice(&mac.as_bytes()[..MAC_BYTES]);
        out.freeze()
    }

    /// Returns whether the message claims to have this purpose. Only opening it shows whether that
    /// is true.
    pub fn claims_purpose(purpose: Purpose, sealed: &[u8]) -> bool {
        sealed.get(3) == Some(&(purpose as u8))
    }

    /// Returns the last second (since 1970) in which the message claims to open. Only opening it
    /// shows whether that is true. Returns `None` if the message is too short to say it.
    pub fn expiry_s(sealed: &[u8]) -> Option<u64> {
        let expiry = sealed.get(4..HEADER_BYTES)?;
        Some(u64::from_be_bytes(expiry.try_into().ok()?))
    }

    /// Opens a message that [`Sealer::seal`] sealed.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the bytes are not a sealed message, are cut short, have another
    /// version or cannot be decoded. `PERMISSION_DENIED` if this key did not seal the message, if
    /// the message was altered, or if it has another purpose. `DEADLINE_EXCEEDED` if the message
    /// has expired.
    pub fn open<M: Message + Default>(&self, purpose: Purpose, sealed: &[u8]) -> Result<M> {
        self.open_at(purpose, sealed, now_s())
    }

    /// Opens a message like [`Sealer::open`], even if it has expired.
    ///
    /// # Errors
    /// The errors of [`Sealer::open`], except `DEADLINE_EXCEEDED`.
    pub fn open_expired<M: Message + Default>(&self, purpose: Purpose, sealed: &[u8]) -> Result<M> {
        self.open_at(purpose, sealed, 0)
    }

    fn open_at<M: Message + Default>(
        &self,
        purpose: Purpose,
        sealed: &[u8],
        now_s: u64,
    ) -> Result<M> {
        let what = purpose.description();
        if sealed.len() < HEADER_BYTES + MAC_BYTES || sealed[..2] != MAGIC {
            return Err(Error::invalid(format!(
                "this is not a {what} of Volary, or it is truncated ({} bytes); use it exactly as it was handed out",
                sealed.len()
            )));
        }
        if sealed[2] != VERSION {
            return Err(Error::invalid(format!(
                "the {what} has version {}, but this node reads version {VERSION}; run the same release on all nodes",
                sealed[2]
            )));
        }
        let (signed, mac) = sealed.split_at(sealed.len() - MAC_BYTES);
        let mut expected = *blake3::keyed_hash(&self.key.0, signed).as_bytes();
        expected[MAC_BYTES..].fill(0);
        let mut presented = [0; blake3::OUT_LEN];
        presented[..MAC_BYTES].copy_from_slice(mac);
        // blake3::Hash compares in constant time.
        if blake3::Hash::from_bytes(expected) != presented {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                format!(
                    "the {what} was not sealed by this cluster, or it was altered or truncated; ask for a new one"
                ),
            ));
        }
        if signed[3] != purpose as u8 {
            return Err(Error::new(
                ErrorCode::PermissionDenied,
                format!("a sealed message of another kind was presented as a {what}"),
            ));
        }
        let expiry_s = Self::expiry_s(signed).unwrap_or_default();
        if expiry_s < now_s {
            return Err(Error::new(
                ErrorCode::DeadlineExceeded,
                format!(
                    "the {what} expired {} s ago; run the statement again",
                    now_s - expiry_s
                ),
            ));
        }
        M::decode(&signed[HEADER_BYTES..]).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("the {what} cannot be decoded"),
                source,
            )
        })
    }
}

/// Returns the current time as seals count it, in seconds since 1970.
pub fn now_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::snapshot::Snapshot;

    fn sealer() -> Sealer {
        Sealer::new(Key::from_secret("secret of the tests"))
    }

    fn message() -> Snapshot {
        Snapshot {
            high: 7,
            excluded_writes: vec![3, 5],
            excluded_bounds: Vec::new(),
        }
    }

    #[test]
    fn what_is_sealed_opens_again() {
        let sealed = sealer().seal(Purpose::Control, &message(), Duration::from_secs(5));
        let opened: Snapshot = sealer().open(Purpose::Control, &sealed).unwrap();
        assert_eq!(opened, message());
    }

    #[test]
    fn the_bytes_never_change() {
        let sealed = sealer().seal_until(Purpose::Control, &message(), 1_700_000_000);
        assert_eq!(sealed.len(), 18 + MAC_BYTES);
        assert_eq!(
            &hex::encode(&sealed)[..36],
            "564c0203000000006553f100080712020305"
        );
        assert_eq!(Sealer::expiry_s(&sealed), Some(1_700_000_000));
    }

    #[test]
    fn every_altered_bit_and_every_cut_is_refused() {
        let sealed = sealer().seal(Purpose::Control, &message(), Duration::from_secs(5));
        for bit in 0..sealed.len() * 8 {
            let mut altered = sealed.to_vec();
            altered[bit / 8] ^= 1 << (bit % 8);
            assert!(
                sealer()
                    .open::<Snapshot>(Purpose::Control, &altered)
                    .is_err()
            );
        }
        for length in 0..sealed.len() {
            assert!(
                sealer()
                    .open::<Snapshot>(Purpose::Control, &sealed[..length])
                    .is_err()
            );
        }
    }

    #[test]
    fn another_key_another_purpose_and_a_late_hour_are_refused() {
        let sealed = sealer().seal_until(Purpose::Control, &message(), 1_000);
        let stranger = Sealer::new(Key::random());
        let code = |result: Result<Snapshot>| result.unwrap_err().code();
        assert_eq!(
            code(stranger.open_at(Purpose::Control, &sealed, 1_000)),
            ErrorCode::PermissionDenied
        );
        assert_eq!(
            code(sealer().open_at(Purpose::Fragment, &sealed, 1_000)),
            ErrorCode::PermissionDenied
        );
        let late: Result<Snapshot> = sealer().open_at(Purpose::Control, &sealed, 1_003);
        let late = late.unwrap_err();
        assert_eq!(late.code(), ErrorCode::DeadlineExceeded);
        assert!(
            late.message()
                .contains("expired 3 s ago; run the statement again"),
            "{late}"
        );
    }
}
