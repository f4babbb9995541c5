//! COPY, as its statement says it.

use std::collections::HashMap;

/// COPY table FROM 'location'.
#[derive(Debug, Clone)]
pub struct CopyFrom {
    /// The table.
    pub table: String,
    /// Columns in the file's order, where it has no header; empty for the table's own.
    pub columns: Vec<String>,
    /// A file, folder, glob or URL.
    pub location: String,
    /// Options as written, lower-case names.
    pub options: HashMap<String, String>,
}
