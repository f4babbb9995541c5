use arrow::datatypes::Schema;
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use volary_catalog::Table;
use volary_flight_proto::{Error, Result};

use crate::sql::copy::CopyFrom;

/// Returns the format that a statement asks for. `delimiter` is used if the statement has no option
/// DELIMITER.
///
/// # Errors
/// `INVALID_ARGUMENT` if the option NULL is a text that the reader does not support.
pub(super) fn csv_format(
    copy: &CopyFrom,
    delimiter: u8,
    compression: CompressionTypeVariant,
) -> Result<CsvFormat> {
    check_null(copy)?;
    let options = &copy.options;
    Ok(CsvFormat::default()
        .with_has_header(has_header(copy))
        .with_delimiter(options.delimiter.unwrap_or(delimiter))
        .with_quote(options.quote.unwrap_or(b'"'))
        .with_escape(options.escape)
        // Quoted line breaks are data. They are safe because one reader reads the whole file from
        // its start.
        .with_newlines_in_values(true)
        .with_file_compression_type(FileCompressionType::from(compression)))
}

/// Refuses the option NULL unless its text is empty. The CSV reader reads only empty fields as
/// NULL.
fn check_null(copy: &CopyFrom) -> Result<()> {
    match copy.options.null.as_deref() {
        None | Some("") => Ok(()),
        Some(text) => Err(Error::unsupported(format!(
            "NULL '{text}' is not supported: a field without text is NULL; convert the file, or leave the option out"
        ))),
    }
}

/// Returns whether the file has a header. If the statement lists columns and has no option HEADER,
/// the list takes the place of the header.
pub(super) fn has_header(copy: &CopyFrom) -> bool {
    copy.options.header.unwrap_or(copy.columns.is_empty())
}

/// Returns the names of a file's columns: the names in its header, or those in the statement's
/// list, or those of the table's columns in their order.
///
/// # Errors
/// `INVALID_ARGUMENT` if the file has more or fewer columns than there are names.
pub(super) fn column_names(
    table: &Table,
    copy: &CopyFrom,
    inferred: &Schema,
) -> Result<Vec<String>> {
    let names_of = |schema: &Schema| -> Vec<String> {
        let names = schema.fields().iter().map(|field| field.name().clone());
        names.collect()
    };
    let names = if has_header(copy) {
        names_of(inferred)
    } else if copy.columns.is_empty() {
        names_of(table.schema())
    } else {
        copy.columns.clone()
    };
    if names.len() != inferred.fields().len() {
        return Err(Error::invalid(format!(
            "the file has {} columns, but {} are expected ({})",
            inferred.fields().len(),
            names.len(),
            names.join(", ")
        )));
    }
    Ok(names)
}

/// Refuses a statement with options of CSV files, for a file that is not CSV.
///
/// # Errors
/// `INVALID_ARGUMENT`, with the name of the option.
pub(super) fn refuse_options(copy: &CopyFrom) -> Result<()> {
    let options = &copy.options;
    let given = [
        ("HEADER", options.header.is_some()),
        ("DELIMITER", options.delimiter.is_some()),
        ("NULL", options.null.is_some()),
        ("QUOTE", options.quote.is_some()),
        ("ESCAPE", options.escape.is_some()),
    ];
    match given.iter().find(|(_, is_given)| *is_given) {
        None => Ok(()),
        Some((name, _)) => Err(Error::invalid(format!(
            "{name} is an option of CSV files; leave it out, or add FORMAT csv"
        ))),
    }
}
