use volary_flight_proto::{Error, ErrorCode, Result};

/// Runs `work`, which may block, on a thread for blocking work. The work runs to its end even if
/// the future is dropped.
///
/// # Errors
/// Returns the error of the work, or `INTERNAL` if the work panics.
pub(crate) async fn run_blocking<T: Send + 'static>(
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
