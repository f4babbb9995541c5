use std::sync::atomic::{AtomicU64, Ordering};

use volary_flight_proto::ErrorCode;

/// Name of the outcome of what did not fail.
const OK: &str = "ok";

/// Counts how many ended well, and how many ended with each code of error.
#[derive(Debug, Default)]
pub struct OutcomeCounts {
    ok: AtomicU64,
    failed: [AtomicU64; ErrorCode::ALL.len()],
}

impl OutcomeCounts {
    /// Counts one more that ended well, or with this code.
    pub fn add(&self, error: Option<ErrorCode>) {
        let count = match error {
            None => &self.ok,
            Some(code) => match ErrorCode::ALL.iter().position(|known| *known == code) {
                Some(index) => &self.failed[index],
                None => return,
            },
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the name of each outcome, in lower case, with its count.
    pub fn all(&self) -> impl Iterator<Item = (String, u64)> {
        let failed = ErrorCode::ALL.iter().zip(&self.failed);
        let failed = failed.map(|(code, count)| (code.name().to_lowercase(), count));
        std::iter::once((OK.to_owned(), &self.ok))
            .chain(failed)
            .map(|(name, count)| (name, count.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted_under_its_name() {
        let counts = OutcomeCounts::default();
        counts.add(None);
        counts.add(Some(ErrorCode::Internal));
        counts.add(Some(ErrorCode::Internal));
        let counted: Vec<_> = counts.all().filter(|(_, count)| *count > 0).collect();
        assert_eq!(counted, [("ok".to_owned(), 1), ("internal".to_owned(), 2)]);
        assert_eq!(counts.all().count(), ErrorCode::ALL.len() + 1);
    }
}
