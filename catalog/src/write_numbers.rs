use tokio::sync::Mutex;
use volary_flight_proto::Result;
use volary_flight_proto::ids::WriteId;

/// Number of writes that are reserved in the store at a time.
pub(super) const RESERVED_AT_ONCE: u64 = 4096;

/// The numbers of writes that are reserved in the store, and that were not given out yet.
#[derive(Debug, Default)]
pub(super) struct WriteNumbers(Mutex<Reserved>);

#[derive(Debug, Default)]
struct Reserved {
    next: u64,
    /// The first number that is not reserved.
    end: u64,
}

impl WriteNumbers {
    /// Gives out the next number. `reserve` reserves [`RESERVED_AT_ONCE`] numbers in the store, and
    /// returns the first of them.
    ///
    /// # Errors
    /// The errors of `reserve`.
    pub(super) async fn next(
        &self,
        reserve: impl Future<Output = Result<WriteId>>,
    ) -> Result<WriteId> {
        let mut reserved = self.0.lock().await;
        if reserved.next == reserved.end {
            reserved.next = reserve.await?.0;
            reserved.end = reserved.next + RESERVED_AT_ONCE;
        }
        let next = WriteId(reserved.next);
        reserved.next += 1;
        Ok(next)
    }
}
