//! Work that waits for the disk.

use volary_flight_proto::{Error, ErrorCode, Result};

/// Runs `work`, which may block, on a thread that may wait. It runs to its end also if the future is dropped.
///
/// # Errors
/// Those of the work; `INTERNAL` if it panics.
pub(crate) async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|source| {
        Error::with_source(
            ErrorCode::Internal,
            "a task that uses files panicked",
            source,
        )
    })?
}
