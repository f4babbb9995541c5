use std::sync::Arc;

use arrow::array::{Array, RecordBatch};
use arrow::datatypes::SchemaRef;
use arrow::row::{RowConverter, SortField};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use volary_catalog::BatchContent;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Hashes what a client sends: the text of a statement, and rows. The hash does not depend on how
/// the rows are cut into messages and compressed: it covers the names and types of the columns, and
/// the values of each row in the order of the rows.
#[derive(Debug)]
pub(crate) struct ContentHasher {
    hasher: blake3::Hasher,
    encoder: Option<RowEncoder>,
}

#[derive(Debug)]
enum RowEncoder {
    Rows(RowConverter),
    /// Encodes the values as texts, for types that arrow's row format does not have.
    Texts,
}

impl ContentHasher {
    /// Creates a hasher that has seen nothing.
    pub(crate) fn new() -> Self {
        Self {
            hasher: blake3::Hasher::new(),
            encoder: None,
        }
    }

    /// Adds a text.
    pub(crate) fn add_text(&mut self, text: &str) {
        self.add_part(text.as_bytes());
    }

    /// Adds the columns of rows. Call it once, before their first row.
    ///
    /// # Errors
    /// `INTERNAL` if the types cannot be encoded.
    pub(crate) fn add_columns(&mut self, schema: &SchemaRef) -> Result<()> {
        let fields = schema.fields();
        for field in fields {
            self.add_part(field.name().as_bytes());
            self.add_part(field.data_type().to_string().as_bytes());
        }
        let sorted = fields
            .iter()
            .map(|field| SortField::new(field.data_type().clone()));
        let sorted: Vec<_> = sorted.collect();
        self.encoder = Some(if RowConverter::supports_fields(&sorted) {
            RowEncoder::Rows(RowConverter::new(sorted).map_err(internal)?)
        } else {
            RowEncoder::Texts
        });
        Ok(())
    }

    /// Adds rows. If their columns were not added, it adds them first.
    ///
    /// # Errors
    /// `INTERNAL` if the values cannot be encoded.
    pub(crate) fn add_rows(&mut self, rows: &RecordBatch) -> Result<()> {
        if self.encoder.is_none() {
            self.add_columns(rows.schema_ref())?;
        }
        match &self.encoder {
            Some(RowEncoder::Rows(converter)) => {
                let encoded = converter
                    .convert_columns(rows.columns())
                    .map_err(internal)?;
                for row in &encoded {
                    self.hasher.update(row.data());
                }
            }
            Some(RowEncoder::Texts) | None => self.add_texts(rows)?,
        }
        Ok(())
    }

    fn add_texts(&mut self, rows: &RecordBatch) -> Result<()> {
        let options = FormatOptions::default();
        let formatters = rows
            .columns()
            .iter()
            .map(|column| ArrayFormatter::try_new(column.as_ref(), &options).map_err(internal));
        let formatters = formatters.collect::<Result<Vec<_>>>()?;
        for row in 0..rows.num_rows() {
            for (column, formatter) in rows.columns().iter().zip(&formatters) {
                self.hasher.update(&[u8::from(column.is_null(row))]);
                let text = formatter.value(row).try_to_string().map_err(internal)?;
                self.add_part(text.as_bytes());
            }
        }
        Ok(())
    }

    /// Adds bytes, so that the same bytes in other parts have another hash.
    fn add_part(&mut self, bytes: &[u8]) {
        self.hasher.update(&(bytes.len() as u64).to_le_bytes());
        self.hasher.update(bytes);
    }

    /// Returns the hash of everything that was added.
    pub(crate) fn content(&self) -> BatchContent {
        let mut content = [0; 16];
        self.hasher.finalize_xof().fill(&mut content);
        BatchContent(content)
    }
}

/// A hasher of rows that arrive while they are written.
pub(crate) type SharedHasher = Arc<parking_lot::Mutex<ContentHasher>>;

fn internal(source: arrow::error::ArrowError) -> Error {
    Error::with_source(ErrorCode::Internal, "rows cannot be hashed", source)
}

#[cfg(test)]
mod tests {
    use arrow::array::{ArrayRef, Int32Array, Int64Array, MapBuilder, StringArray, StringBuilder};
    use arrow::compute::concat_batches;

    use super::*;

    fn hash(batches: &[RecordBatch]) -> BatchContent {
        let mut hasher = ContentHasher::new();
        for batch in batches {
            hasher.add_rows(batch).unwrap();
        }
        hasher.content()
    }

    fn rows(numbers: &[i64], names: &[Option<&str>]) -> RecordBatch {
        let numbers: ArrayRef = Arc::new(Int64Array::from(numbers.to_vec()));
        let names: ArrayRef = Arc::new(StringArray::from(names.to_vec()));
        RecordBatch::try_from_iter_with_nullable([("n", numbers, true), ("s", names, true)])
            .unwrap()
    }

    #[test]
    fn it_depends_on_the_rows_and_not_on_their_batches() {
        let (a, b) = (rows(&[1, 2], &[Some("x"), None]), rows(&[3], &[Some("")]));
        let both = concat_batches(a.schema_ref(), [&a, &b]).unwrap();
        let expected = hash(std::slice::from_ref(&both));
        assert_eq!(hash(&[a.clone(), b.clone()]), expected);
        assert_eq!(hash(&[both.slice(0, 1), both.slice(1, 2)]), expected);
        assert_ne!(hash(&[b.clone(), a.clone()]), expected);
        assert_ne!(hash(&[a]), expected);
        assert_ne!(
            hash(&[rows(&[1, 2, 3], &[Some("x"), Some(""), None])]),
            expected
        );
        let renamed = both.schema().project(&[0]).unwrap();
        let one =
            RecordBatch::try_new(Arc::new(renamed), vec![Arc::clone(both.column(0))]).unwrap();
        let narrow: ArrayRef = Arc::new(Int32Array::from(vec![1, 2, 3]));
        let other_type = RecordBatch::try_from_iter_with_nullable([("n", narrow, true)]).unwrap();
        assert_ne!(hash(&[one]), hash(&[other_type]));
    }

    #[test]
    fn texts_are_told_apart_and_maps_have_hashes_too() {
        let text = |parts: &[&str]| {
            let mut hasher = ContentHasher::new();
            parts.iter().for_each(|part| hasher.add_text(part));
            hasher.content()
        };
        assert_eq!(text(&["a", "b"]), text(&["a", "b"]));
        assert_ne!(text(&["a", "b"]), text(&["ab"]));
        let map = |value: &str| {
            let mut map = MapBuilder::new(None, StringBuilder::new(), StringBuilder::new());
            map.keys().append_value("k");
            map.values().append_value(value);
            map.append(true).unwrap();
            let map: ArrayRef = Arc::new(map.finish());
            RecordBatch::try_from_iter([("m", map)]).unwrap()
        };
        assert_eq!(hash(&[map("a")]), hash(&[map("a")]));
        assert_ne!(hash(&[map("a")]), hash(&[map("b")]));
    }
}
