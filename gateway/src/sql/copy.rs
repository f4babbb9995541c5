use super::names::WrittenName;

/// The statement COPY table FROM 'location'.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// Name of the table.
    pub table: WrittenName,
    /// The columns to load. They are found by name if the file has names, and otherwise by their
    /// order in the file. Empty if all columns are to be loaded.
    pub columns: Vec<String>,
    /// A file, folder, glob or URL.
    pub location: String,
    /// The options in parentheses.
    pub options: CopyOptions,
}

/// The options of COPY. The default of an option depends on the file.
#[derive(Debug, Clone, Default)]
pub struct CopyOptions {
    /// The format, in lower-case letters.
    pub format: Option<String>,
    /// Says whether the first line of a CSV file has the names of the columns. This option and the
    /// following ones are for CSV files only.
    pub header: Option<bool>,
    /// The character that separates fields.
    pub delimiter: Option<u8>,
    /// The text that stands for NULL.
    pub null: Option<String>,
    /// The character before and after a field that contains delimiters.
    pub quote: Option<u8>,
    /// The character before a quote within a quoted field.
    pub escape: Option<u8>,
}
