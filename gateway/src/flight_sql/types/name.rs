use std::collections::HashMap;

use arrow::datatypes::{DataType, Field};

use crate::sql_type::sql_type_name;

const CATALOG_NAME: &str = "ARROW:FLIGHT:SQL:CATALOG_NAME";
const SCHEMA_NAME: &str = "ARROW:FLIGHT:SQL:DB_SCHEMA_NAME";
const TABLE_NAME: &str = "ARROW:FLIGHT:SQL:TABLE_NAME";
/// Key of the SQL name of a column's type.
pub(super) const TYPE_NAME: &str = "ARROW:FLIGHT:SQL:TYPE_NAME";
const PRECISION: &str = "ARROW:FLIGHT:SQL:PRECISION";
const SCALE: &str = "ARROW:FLIGHT:SQL:SCALE";

/// Returns `field` with Flight SQL's metadata about a column of the table. `field` has the type
/// that clients are sent, and `original` is the column's own type. The metadata is needed, because
/// ODBC's SQLColumns crashes on a field without any.
pub(in crate::flight_sql) fn with_sql_metadata(
    field: &Field,
    original: &DataType,
    table: [&str; 3],
) -> Field {
    let [catalog, schema, name] = table;
    let mut metadata: HashMap<String, String> = field.metadata().clone();
    let mut put = |key: &str, value: String| metadata.insert(key.to_owned(), value);
    put(CATALOG_NAME, catalog.to_owned());
    put(SCHEMA_NAME, schema.to_owned());
    put(TABLE_NAME, name.to_owned());
    put(TYPE_NAME, sql_type_name(original));
    if let DataType::Decimal128(precision, scale) | DataType::Decimal256(precision, scale) =
        field.data_type()
    {
        put(PRECISION, precision.to_string());
        put(SCALE, scale.to_string());
    }
    field.clone().with_metadata(metadata)
}
