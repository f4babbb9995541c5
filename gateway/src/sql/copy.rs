//! COPY, as its statement says it.

/// COPY table FROM 'location'.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// The table.
    pub table: String,
    /// The columns to load: by name where the file has names, else in the file's order. Empty for all of them.
    pub columns: Vec<String>,
    /// A file, folder, glob or URL.
    pub location: String,
    /// What is said in parentheses.
    pub options: Options,
}

/// The options of COPY; what is not said depends on the file.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The format in lower-case letters.
    pub format: Option<String>,
    /// Of CSV, as are all that follow: whether the first line has the names.
    pub header: Option<bool>,
    /// What separates fields.
    pub delimiter: Option<u8>,
    /// The text that stands for NULL.
    pub null: Option<String>,
    /// What stands around a field with delimiters in it.
    pub quote: Option<u8>,
    /// What stands before a quote within quotes.
    pub escape: Option<u8>,
}
