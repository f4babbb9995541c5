use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use prost::encoding::{DecodeContext, WireType, skip_field};
use prost::{DecodeError, Message};
use volary_flight_proto::seal::{Key, Purpose, Sealer};

/// The secret of the fuzzed cluster.
pub const SECRET: &str = "the secret of the fuzzed cluster";

/// Lifetime of everything that is sealed. It is longer than a run.
pub const VALID_FOR: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// All purposes of seals.
pub const PURPOSES: [Purpose; 12] = [
    Purpose::Fragment,
    Purpose::Write,
    Purpose::Control,
    Purpose::Membership,
    Purpose::Query,
    Purpose::PreparedStatement,
    Purpose::Session,
    Purpose::Direct,
    Purpose::Introduction,
    Purpose::Node,
    Purpose::MembershipAnswer,
    Purpose::IntroductionAnswer,
];

/// Returns a sealer with the key of the fuzzed cluster.
pub fn sealer() -> Sealer {
    Sealer::new(Key::from_secret(SECRET))
}

/// A message whose encoding is exactly these bytes. With it, any plaintext can be sealed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Raw(pub Bytes);

impl Raw {
    /// Seals the plaintext with the cluster's key.
    pub fn sealed(plaintext: &[u8], purpose: Purpose) -> Bytes {
        sealer().seal(purpose, &Self(Bytes::copy_from_slice(plaintext)), VALID_FOR)
    }
}

impl Message for Raw {
    fn encode_raw(&self, buffer: &mut impl BufMut) {
        buffer.put_slice(&self.0);
    }

    fn merge_field(
        &mut self,
        tag: u32,
        wire_type: WireType,
        buffer: &mut impl Buf,
        context: DecodeContext,
    ) -> Result<(), DecodeError> {
        skip_field(wire_type, tag, buffer, context)
    }

    fn encoded_len(&self) -> usize {
        self.0.len()
    }

    fn clear(&mut self) {
        self.0.clear();
    }
}
