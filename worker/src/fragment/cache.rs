//! Only a fragment that a node of the cluster sealed gets into the cache, and only under its own
//! id.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use datafusion_proto::protobuf::PhysicalPlanNode;
use moka::policy::EvictionPolicy;
use moka::sync::Cache;
use prost::Message;
use volary_flight_proto::fragment::{Fragment, FragmentId};
use volary_flight_proto::ticket::FragmentTicket;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::batch_rows::check_batch_rows;
use crate::lookup::request::KeyedFragment;

/// Estimated memory of a decoded plan, for each byte of its encoded form. For example, a column
/// with a name of a few letters is a decoded message of some hundred bytes.
const DECODED_BYTES_PER_BYTE: usize = 10;
/// Time that the start of a fragment may take on a network thread, where other calls wait for it.
const QUICK_START: Duration = Duration::from_millis(1);

/// A fragment, decoded as far as possible without a ticket.
#[derive(Debug)]
pub struct DecodedFragment {
    /// The settings of the fragment, without its plan.
    pub settings: Fragment,
    /// The plan of the fragment.
    pub plan: PhysicalPlanNode,
    /// What the fragment asks for, if it asks for rows by key.
    pub(crate) keyed: Option<KeyedFragment>,
    /// Estimated memory of the fragment, in bytes.
    bytes: u32,
    /// Time that the last start of the fragment took, in nanoseconds. The tickets of a fragment
    /// differ only in shards and values, so each start takes about the same time.
    start_nanos: AtomicU64,
}

impl DecodedFragment {
    /// Notes how long a start of the fragment took: binding it and opening its rows.
    pub(super) fn note_start(&self, took: Duration) {
        let nanos = u64::try_from(took.as_nanos()).unwrap_or(u64::MAX);
        self.start_nanos.store(nanos, Ordering::Relaxed);
    }

    /// Returns whether the last start took so little time that the next one may be on a network
    /// thread.
    pub(super) fn starts_quickly(&self) -> bool {
        let nanos = self.start_nanos.load(Ordering::Relaxed);
        Duration::from_nanos(nanos) <= QUICK_START
    }
}

/// The fragment of a ticket: a cached one, or one that the ticket contains.
#[derive(Debug)]
pub enum TicketFragment {
    /// The ticket only names the fragment, and the fragment is cached.
    Cached(Arc<DecodedFragment>),
    /// The ticket contains the fragment.
    Sent(Box<SentFragment>),
}

/// A fragment that came with a ticket. Its plan may be large, and is not decoded yet.
#[derive(Debug)]
pub struct SentFragment {
    id: FragmentId,
    encoded: Bytes,
    fragment: Fragment,
}

impl TicketFragment {
    /// Returns how long a stream of the fragment may be silent.
    pub fn keep_alive(&self) -> Duration {
        Duration::from_millis(u64::from(self.settings().keep_alive_ms))
    }

    /// Returns whether the fragment merges the rows of other workers.
    pub fn relays(&self) -> bool {
        self.settings().relayed.is_some()
    }

    /// Returns the fragment if it is cached.
    pub(super) fn cached(&self) -> Option<&Arc<DecodedFragment>> {
        match self {
            Self::Cached(kept) => Some(kept),
            Self::Sent(_) => None,
        }
    }

    fn settings(&self) -> &Fragment {
        match self {
            Self::Cached(kept) => &kept.settings,
            Self::Sent(sent) => &sent.fragment,
        }
    }
}

/// Cache of fragments, by their ids.
#[derive(Debug)]
pub struct FragmentCache(Cache<FragmentId, Arc<DecodedFragment>>);

impl FragmentCache {
    /// Creates a cache of about `max_bytes` bytes. It forgets the least recently used fragment
    /// first.
    pub fn new(max_bytes: usize) -> Self {
        Self(
            Cache::builder()
                .max_capacity(max_bytes as u64)
                .weigher(|_, kept: &Arc<DecodedFragment>| kept.bytes)
                .eviction_policy(EvictionPolicy::lru())
                .build(),
        )
    }

    /// Returns the fragment of a ticket. Returns `None` if the ticket only names the fragment, and
    /// the fragment is not cached.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the id of the fragment is not valid, or if the message cannot
    /// be decoded.
    pub fn ticket_fragment(&self, ticket: &FragmentTicket) -> Result<Option<TicketFragment>> {
        let id = ticket.fragment_id()?;
        let Some(encoded) = &ticket.fragment else {
            return Ok(self.0.get(&id).map(TicketFragment::Cached));
        };
        Ok(Some(TicketFragment::Sent(Box::new(SentFragment {
            id,
            encoded: encoded.clone(),
            fragment: Fragment::decode(encoded.clone()).map_err(undecodable)?,
        }))))
    }

    /// Returns the decoded fragment, and caches it if it came with its ticket.
    ///
    /// # Errors
    /// Returns `INVALID_ARGUMENT` if the fragment has another id than the ticket says, cannot be
    /// decoded, or asks for batches that are too large.
    pub fn decoded(&self, ticket_fragment: TicketFragment) -> Result<Arc<DecodedFragment>> {
        let SentFragment {
            id,
            encoded,
            fragment,
        } = match ticket_fragment {
            TicketFragment::Cached(kept) => return Ok(kept),
            TicketFragment::Sent(sent) => *sent,
        };
        if FragmentId::of(&encoded) != id {
            return Err(Error::invalid(format!(
                "the fragment in the ticket does not have the id {id} that the ticket names; run the same release on all nodes"
            )));
        }
        if let Some(kept) = self.0.get(&id) {
            return Ok(kept);
        }
        check_batch_rows(fragment.batch_rows)?;
        let bytes = encoded.len().saturating_mul(DECODED_BYTES_PER_BYTE);
        let plan = PhysicalPlanNode::decode(fragment.plan.clone()).map_err(undecodable)?;
        let decoded_fragment = Arc::new(DecodedFragment {
            keyed: KeyedFragment::of(&plan, &fragment),
            plan,
            settings: Fragment {
                plan: Bytes::new(),
                ..fragment
            },
            bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
            start_nanos: AtomicU64::new(u64::MAX),
        });
        self.0.insert(id, Arc::clone(&decoded_fragment));
        Ok(decoded_fragment)
    }
}

fn undecodable(source: prost::DecodeError) -> Error {
    Error::with_source(
        ErrorCode::InvalidArgument,
        "the fragment cannot be decoded; run the same release on all nodes",
        source,
    )
}

#[cfg(test)]
mod tests {
    use datafusion_proto::protobuf::physical_plan_node::PhysicalPlanType;
    use datafusion_proto::protobuf::{CooperativeExecNode, EmptyExecNode};
    use volary_flight_proto::fragment::MAX_BATCH_ROWS;

    use super::*;

    fn fragment(batch_rows: u32, plan: &PhysicalPlanNode) -> Bytes {
        let fragment = Fragment {
            plan: plan.encode_to_vec().into(),
            keep_alive_ms: 70,
            batch_rows,
            ..Fragment::default()
        };
        fragment.encode_to_vec().into()
    }

    fn plan() -> PhysicalPlanNode {
        PhysicalPlanNode {
            physical_plan_type: Some(PhysicalPlanType::Empty(EmptyExecNode::default())),
        }
    }

    fn named(encoded: &Bytes) -> FragmentTicket {
        FragmentTicket {
            fragment_id: FragmentId::of(encoded).to_bytes(),
            ..FragmentTicket::default()
        }
    }

    fn sent(encoded: &Bytes) -> FragmentTicket {
        FragmentTicket {
            fragment: Some(encoded.clone()),
            ..named(encoded)
        }
    }

    fn decoded(kept: &FragmentCache, ticket: &FragmentTicket) -> Result<Arc<DecodedFragment>> {
        kept.decoded(kept.ticket_fragment(ticket)?.unwrap())
    }

    #[test]
    fn a_fragment_is_decoded_once_and_known_by_its_name_then() {
        let kept = FragmentCache::new(1 << 20);
        let encoded = fragment(100, &plan());
        assert!(kept.ticket_fragment(&named(&encoded)).unwrap().is_none());
        let first = decoded(&kept, &sent(&encoded)).unwrap();
        assert_eq!(first.plan, plan());
        assert_eq!(first.settings.batch_rows, 100);
        for ticket in [named(&encoded), sent(&encoded)] {
            let given = kept.ticket_fragment(&ticket).unwrap().unwrap();
            assert_eq!(given.keep_alive(), Duration::from_millis(70));
            assert!(Arc::ptr_eq(&kept.decoded(given).unwrap(), &first));
        }
        let other = fragment(200, &plan());
        assert!(kept.ticket_fragment(&named(&other)).unwrap().is_none());
    }

    #[test]
    fn a_fragment_is_known_to_start_quickly_only_after_it_did() {
        let kept = FragmentCache::new(1 << 20);
        let encoded = fragment(100, &plan());
        let given = kept.ticket_fragment(&sent(&encoded)).unwrap().unwrap();
        assert!(given.cached().is_none());
        kept.decoded(given).unwrap();
        let given = kept.ticket_fragment(&named(&encoded)).unwrap().unwrap();
        let fragment = given.cached().unwrap();
        assert!(!fragment.starts_quickly());
        for (took, is_quick) in [
            (QUICK_START, true),
            (2 * QUICK_START, false),
            (Duration::ZERO, true),
        ] {
            fragment.note_start(took);
            assert_eq!(fragment.starts_quickly(), is_quick, "{took:?}");
        }
    }

    #[test]
    fn a_fragment_under_another_ones_id_is_refused_and_not_kept() {
        let kept = FragmentCache::new(1 << 20);
        let encoded = fragment(200, &plan());
        for at in 0..encoded.len() {
            let mut altered = encoded.to_vec();
            altered[at] ^= 1;
            let ticket = FragmentTicket {
                fragment: Some(altered.into()),
                ..named(&encoded)
            };
            let error = decoded(&kept, &ticket).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        }
        assert!(kept.ticket_fragment(&named(&encoded)).unwrap().is_none());
        // The wrong fragment is refused even if the right one is known.
        decoded(&kept, &sent(&encoded)).unwrap();
        let ticket = FragmentTicket {
            fragment: Some(fragment(300, &plan())),
            ..named(&encoded)
        };
        let error = decoded(&kept, &ticket).unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    }

    #[test]
    fn what_is_no_fragment_is_refused() {
        let kept = FragmentCache::new(1 << 20);
        let no_plan = Fragment {
            plan: vec![0xff; 9].into(),
            ..Fragment::default()
        };
        let nested = (0..200).fold(plan(), |input, _| PhysicalPlanNode {
            physical_plan_type: Some(PhysicalPlanType::Cooperative(Box::new(
                CooperativeExecNode {
                    input: Some(Box::new(input)),
                },
            ))),
        });
        for encoded in [
            Bytes::from(vec![0xff; 9]),
            Bytes::from(no_plan.encode_to_vec()),
            fragment(200, &nested),
        ] {
            let error = decoded(&kept, &sent(&encoded)).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
            let no_id = FragmentTicket {
                fragment_id: Bytes::from_static(b"short"),
                ..sent(&encoded)
            };
            let error = kept.ticket_fragment(&no_id).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn batches_that_are_too_large_are_refused() {
        let kept = FragmentCache::new(1 << 20);
        let of = |batch_rows| {
            let fragment = Fragment {
                plan: plan().encode_to_vec().into(),
                batch_rows,
                ..Fragment::default()
            };
            decoded(&kept, &sent(&Bytes::from(fragment.encode_to_vec())))
        };
        assert!(of(MAX_BATCH_ROWS).is_ok());
        for rows in [MAX_BATCH_ROWS + 1, u32::MAX] {
            let error = of(rows).unwrap_err();
            assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        }
    }

    #[test]
    fn what_was_not_used_for_the_longest_time_is_forgotten() {
        let fragments: Vec<_> = (1..21).map(|number| fragment(number, &plan())).collect();
        let kept = FragmentCache::new(fragments[0].len() * DECODED_BYTES_PER_BYTE * 4);
        for encoded in &fragments {
            decoded(&kept, &sent(encoded)).unwrap();
            kept.0.run_pending_tasks();
        }
        let known = |encoded: &Bytes| kept.ticket_fragment(&named(encoded)).unwrap().is_some();
        assert_eq!(kept.0.entry_count(), 4);
        assert!(known(&fragments[19]));
        assert!(!known(&fragments[0]));
    }
}
