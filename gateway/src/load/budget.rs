use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use volary_flight_proto::{Error, ErrorCode, Result};

/// The unit in which bytes are counted. A semaphore counts fewer permits than there may be bytes.
const UNIT_BYTES: usize = 1024;

/// Time after which a refused write may be sent again. Several groups commit in that time.
const RETRY_AFTER: Duration = Duration::from_millis(500);

/// A limit on the bytes of rows that wait.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    units: usize,
    free: Arc<Semaphore>,
    /// What is limited, for errors.
    what: &'static str,
    setting: &'static str,
}

/// Bytes of a budget. Dropping them gives them back.
#[derive(Debug)]
pub(crate) struct BudgetShare(
    #[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit,
);

impl ByteBudget {
    /// Creates a budget that nothing has been taken from.
    pub(super) fn new(bytes: usize, what: &'static str, setting: &'static str) -> Self {
        let units = (bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS.min(u32::MAX as usize));
        Self {
            units,
            free: Arc::new(Semaphore::new(units)),
            what,
            setting,
        }
    }

    /// Takes bytes from the budget.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED` if too few are left. The error says when to try again.
    pub(super) fn try_take(&self, bytes: usize) -> Result<BudgetShare> {
        let share = Arc::clone(&self.free).try_acquire_many_owned(self.units_of(bytes));
        share.map(BudgetShare).map_err(|_| {
            Error::new(
                ErrorCode::ResourceExhausted,
                format!(
                    "{} take all of their {} MiB; send less at once, add workers, or raise {}",
                    self.what,
                    (self.units * UNIT_BYTES) >> 20,
                    self.setting
                ),
            )
            .with_retry_after(RETRY_AFTER)
        })
    }

    /// Waits until bytes can be taken from the budget. Those who wait are served in the order of
    /// arrival.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the gateway stops.
    pub(crate) async fn take(&self, bytes: usize) -> Result<BudgetShare> {
        let share = Arc::clone(&self.free).acquire_many_owned(self.units_of(bytes));
        let share = share.await.map(BudgetShare);
        share.map_err(|_| Error::unavailable("the gateway is shutting down; connect again"))
    }

    /// Returns how many bytes are taken.
    pub(crate) fn used_bytes(&self) -> usize {
        self.units.saturating_sub(self.free.available_permits()) * UNIT_BYTES
    }

    /// Returns the number of units for these bytes. More than the whole budget counts as all of it.
    fn units_of(&self, bytes: usize) -> u32 {
        let units = bytes.div_ceil(UNIT_BYTES).min(self.units);
        u32::try_from(units).unwrap_or(u32::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_exceeds_the_budget_is_refused_or_waits() {
        let budget = ByteBudget::new(1 << 20, "waiting writes", "the.setting");
        let half = budget.try_take(512 << 10).unwrap();
        let error = budget.try_take((512 << 10) + 1).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        for part in [
            "waiting writes take all of their 1 MiB",
            "the.setting",
            "retry in about",
        ] {
            assert!(error.message().contains(part), "{error}");
        }
        assert_eq!(budget.used_bytes(), 512 << 10);
        let all = budget.take(100 << 20);
        tokio::pin!(all);
        assert!(futures::poll!(&mut all).is_pending());
        drop(half);
        let all = all.await.unwrap();
        assert_eq!(budget.used_bytes(), 1 << 20);
        drop(all);
        assert_eq!(budget.used_bytes(), 0);
    }
}
