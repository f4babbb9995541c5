//! Which line of a text file an error is about.
//!
//! Lines are counted as records: line breaks within quotes and empty lines, which the readers skip, do not count.

use futures::StreamExt;
use volary_flight_proto::Error;

use super::source::Rows;

/// Records that are read again, one by one, for the line of an error: some seconds' work.
const MAX_SEARCHED: u64 = 1_000_000;

/// How the records of a file are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lines {
    /// They are not: the file is no text.
    None,
    /// One after the other, after the header if there is one.
    Csv {
        /// Whether the first line is none of the records.
        has_header: bool,
    },
    /// One after the other.
    Json,
}

impl Lines {
    /// The line of a row of a batch, before which `read` records were read.
    pub(super) fn of_row(self, read: u64, row: usize) -> Option<u64> {
        let header = match self {
            Self::None => return None,
            Self::Csv { has_header } => u64::from(has_header),
            Self::Json => 0,
        };
        Some(read + header + row as u64 + 1)
    }
}

/// The first record that cannot be read, and its line, of a file without a header whose records come one by one. The reader of
/// JSON does not say which one it is.
pub(super) async fn first_bad_record(mut records: Rows) -> Option<(u64, Error)> {
    let mut read = 0;
    while read < MAX_SEARCHED {
        match records.next().await? {
            Ok(batch) => read += batch.num_rows() as u64,
            Err(error) => return Some((read + 1, error)),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_counted_from_the_start_of_the_file() {
        assert_eq!(Lines::Csv { has_header: true }.of_row(100, 2), Some(104));
        assert_eq!(Lines::Csv { has_header: false }.of_row(0, 0), Some(1));
        assert_eq!(Lines::Json.of_row(100, 2), Some(103));
        assert_eq!(Lines::None.of_row(100, 2), None);
    }
}
