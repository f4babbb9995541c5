use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};

use crate::sql_type::driver_metadata;

const CATALOG_NAME: &str = "ARROW:FLIGHT:SQL:CATALOG_NAME";
/// The key that the specification of Flight SQL has, and the one that drivers read.
const SCHEMA_NAMES: [&str; 2] = [
    "ARROW:FLIGHT:SQL:DB_SCHEMA_NAME",
    "ARROW:FLIGHT:SQL:SCHEMA_NAME",
];
const TABLE_NAME: &str = "ARROW:FLIGHT:SQL:TABLE_NAME";

/// Returns `field` with Flight SQL's metadata about a column of the table. `field` has the type
/// that clients are sent, and `original` is the column's own type. The metadata is needed, because
/// ODBC's SQLColumns crashes on a field without any.
pub(crate) fn with_sql_metadata(field: &Field, original: &DataType, table: [&str; 3]) -> Field {
    let [catalog, schema, name] = table;
    let mut metadata: HashMap<String, String> = field.metadata().clone();
    metadata.extend(driver_metadata(original));
    let mut put = |key: &str, value: &str| metadata.insert(key.to_owned(), value.to_owned());
    put(CATALOG_NAME, catalog);
    for key in SCHEMA_NAMES {
        put(key, schema);
    }
    put(TABLE_NAME, name);
    field.clone().with_metadata(metadata)
}
