use std::error::Error as StdError;
use std::io;

use rustix::io::Errno;
use volary_flight_proto::{Error, ErrorCode};

/// Returns whether a path could not be resolved because its symbolic links form a loop. The causes
/// of the error are checked, too.
pub(super) fn is_link_loop(error: &(dyn StdError + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(current) = cause {
        if let Some(error) = current.downcast_ref::<io::Error>()
            && Errno::from_io_error(error) == Some(Errno::LOOP)
        {
            return true;
        }
        cause = current.source();
    }
    false
}

/// Creates the error of a location whose symbolic links form a loop.
pub(super) fn link_loop_error(
    location: &str,
    source: impl Into<Box<dyn StdError + Send + Sync>>,
) -> Error {
    let message = format!("COPY may not read '{location}': its symbolic links form a loop");
    Error::with_source(ErrorCode::InvalidArgument, message, source)
}
