use std::error::Error as StdError;
use std::io;

use arrow::datatypes::Schema;
use datafusion::error::DataFusionError;
use volary_flight_proto::{Error, ErrorCode, SqlState};

/// Converts an error of opening or reading a text file. A compressed file that is damaged or cut
/// short is reported as damaged data, and not as a store that cannot be reached.
pub(super) fn explain_text_error(error: DataFusionError) -> Error {
    if is_damaged(&error) {
        Error::with_source(
            ErrorCode::DataLoss,
            "the compressed file is damaged or cut short",
            error,
        )
    } else {
        error.into()
    }
}

fn is_damaged(error: &DataFusionError) -> bool {
    let mut cause: Option<&(dyn StdError + 'static)> = Some(error);
    while let Some(current) = cause {
        // If the connection to a store ends early, that says nothing about the file.
        if let Some(store) = current.downcast_ref::<object_store::Error>()
            && !is_line_reader_error(store)
        {
            return false;
        }
        if let Some(source) = current.downcast_ref::<io::Error>() {
            use io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
            return matches!(source.kind(), InvalidData | InvalidInput | UnexpectedEof);
        }
        cause = current.source();
    }
    false
}

/// Returns whether the error comes from the reader of lines. This reader reports all its errors as
/// errors of a store.
fn is_line_reader_error(error: &object_store::Error) -> bool {
    matches!(error, object_store::Error::Generic { store, .. } if store.contains("delimited chunks"))
}

/// Converts an error of reading rows. If a value of a CSV file cannot be parsed, the new error
/// names the line and the column.
///
/// arrow counts lines and columns from 0, does not know the names of the columns, and reports both
/// only as text. A record with quoted line breaks counts as one line. An error whose text is not
/// understood is returned unchanged.
pub(super) fn explain_row_error(error: Error, columns: &Schema, has_header: bool) -> Error {
    explain_value(error.message(), columns, has_header).unwrap_or(error)
}

fn explain_value(text: &str, columns: &Schema, has_header: bool) -> Option<Error> {
    const BEFORE_VALUE: &str = "Error while parsing value '";
    const BEFORE_TYPE: &str = "' as type '";
    const BEFORE_COLUMN: &str = "' for column ";
    const BEFORE_LINE: &str = " at line ";
    let (_, rest) = text.split_once(BEFORE_VALUE)?;
    let (rest, row) = rest.split_once(". Row data: ")?;
    let (rest, line) = rest.rsplit_once(BEFORE_LINE)?;
    let (rest, column) = rest.rsplit_once(BEFORE_COLUMN)?;
    let (value, data_type) = rest.rsplit_once(BEFORE_TYPE)?;
    let line = line.parse::<u64>().ok()? + 1;
    let column = columns.fields().get(column.parse::<usize>().ok()?)?.name();
    let first = if has_header {
        "; line 1 is the header"
    } else {
        ""
    };
    Some(
        Error::new(
            ErrorCode::InvalidArgument,
            format!("line {line}, column {column}: '{value}' is not a valid {data_type} (row {row}{first})"),
        )
        .with_sqlstate(SqlState::InvalidTextRepresentation),
    )
}

/// Returns the name in a JSON record that the reader refuses because its schema has no such column.
/// The name is taken from the text of the error.
pub(super) fn unknown_column_name(error: &Error) -> Option<&str> {
    let (_, rest) = error.message().split_once("Json error: column '")?;
    rest.split_once("' missing from schema")
        .map(|(column, _)| column)
}

#[cfg(test)]
mod tests {
    use arrow::datatypes::{DataType, Field};
    use arrow::error::ArrowError;

    use super::*;

    #[test]
    fn a_value_that_does_not_parse_is_named_with_line_and_column() {
        let columns = Schema::new(vec![
            Field::new("k", DataType::Int64, true),
            Field::new("price", DataType::Float64, true),
        ]);
        let text = "Parser error: Error while parsing value 'it's' as type 'Float64' for column 1 at line 6. Row data: '[5,it's]'";
        let error = explain_row_error(Error::invalid(text), &columns, true);
        assert_eq!(
            error.message(),
            "line 7, column price: 'it's' is not a valid Float64 (row '[5,it's]'; line 1 is the header)"
        );
    }

    #[test]
    fn a_file_that_ends_early_is_damaged_and_a_connection_is_not() {
        let early = || io::Error::from(io::ErrorKind::UnexpectedEof);
        let of_file = ArrowError::IoError("cannot be read".to_owned(), early());
        let of_store = object_store::Error::Generic {
            store: "S3",
            source: Box::new(early()),
        };
        assert_eq!(
            explain_text_error(of_file.into()).code(),
            ErrorCode::DataLoss
        );
        assert_ne!(
            explain_text_error(of_store.into()).code(),
            ErrorCode::DataLoss
        );
    }

    #[test]
    fn an_unknown_column_is_found_in_the_readers_error() {
        let error = Error::invalid("Json error: column 'it's' missing from schema");
        assert_eq!(unknown_column_name(&error), Some("it's"));
        assert_eq!(unknown_column_name(&Error::invalid("Json error: x")), None);
    }

    #[test]
    fn other_errors_stay_as_they_are() {
        let error = explain_row_error(Error::invalid("Csv error: x"), &Schema::empty(), false);
        assert_eq!(error.message(), "Csv error: x");
    }
}
