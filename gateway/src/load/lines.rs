//! Line numbers in errors count records, not line breaks. So quoted line breaks do not count. Empty
//! lines do not count either, because the readers skip them.

use futures::StreamExt;
use volary_flight_proto::Error;

use super::source::RowStream;

/// Maximum number of records that are read again, one by one, to find the line of an error. Reading
/// them takes some seconds.
const MAX_SEARCHED_RECORDS: u64 = 1_000_000;

/// How the records of a file are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineNumbering {
    /// The records are not counted, because the file is not a text file.
    None,
    /// The records of a CSV file. The header, if there is one, is the first line.
    Csv {
        /// Says whether the first line of the file is a header, and not a record.
        has_header: bool,
    },
    /// The records of a JSON file.
    Json,
}

impl LineNumbering {
    /// Returns the line of a row of a batch, or `None` if lines are not counted. `records_before`
    /// is the number of records that were read before the batch.
    pub(super) fn line_of_row(self, records_before: u64, row: usize) -> Option<u64> {
        let header = match self {
            Self::None => return None,
            Self::Csv { has_header } => u64::from(has_header),
            Self::Json => 0,
        };
        Some(records_before + header + row as u64 + 1)
    }
}

/// Returns the line and the error of the first record that cannot be read. Each batch of `records`
/// has one record of a file without a header. The JSON reader does not say which record is wrong.
pub(super) async fn first_bad_record(mut records: RowStream) -> Option<(u64, Error)> {
    let mut read = 0;
    while read < MAX_SEARCHED_RECORDS {
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
        assert_eq!(
            LineNumbering::Csv { has_header: true }.line_of_row(100, 2),
            Some(104)
        );
        assert_eq!(
            LineNumbering::Csv { has_header: false }.line_of_row(0, 0),
            Some(1)
        );
        assert_eq!(LineNumbering::Json.line_of_row(100, 2), Some(103));
        assert_eq!(LineNumbering::None.line_of_row(100, 2), None);
    }
}
