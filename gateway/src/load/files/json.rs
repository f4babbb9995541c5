//! DataFusion's JSON reader ignores names that are not in its schema. To find all names, it would
//! read the whole file into memory if the store is not a local disk. This module looks for names
//! only in a limited prefix of the file. Later unknown names are refused.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufReader, Read};
use std::sync::Arc;

use arrow::array::{ArrayRef, BooleanBuilder, RecordBatch};
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use arrow::error::ArrowError;
use arrow::json::ReaderBuilder;
use arrow::json::reader::Decoder;
use bytes::{Buf, Bytes};
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::error::DataFusionError;
use futures::stream::BoxStream;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use object_store::path::Path;
use object_store::{GetResultPayload, ObjectStore, ObjectStoreExt};
use serde::de::IgnoredAny;
use volary_flight_proto::Result;

use crate::load::file_errors;
use crate::load::source::RowStream;

/// Maximum number of records that are searched for names before the file is read.
const NAME_SEARCH_RECORDS: usize = 1_000;
/// Number of decompressed bytes after which the search for names ends.
const NAME_SEARCH_BYTES: usize = 1 << 20;

/// Number of bytes that are read from a local file at once.
const CHUNK_BYTES: usize = 256 << 10;

type ByteStream = BoxStream<'static, Result<Bytes, DataFusionError>>;

/// A file that is read from its start.
#[derive(Debug, Clone)]
pub(super) struct JsonFile {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) path: Path,
    pub(super) compression: FileCompressionType,
}

/// The settings for reading the records of a file.
#[derive(Debug, Clone)]
pub(super) struct JsonReading {
    /// The columns to read. In a column of text, numbers and booleans are read as text, too.
    pub(super) schema: SchemaRef,
    /// Says whether names that are not in the schema are ignored. Otherwise they are refused.
    pub(super) ignores_unknown: bool,
    /// Names of columns. The batches have another column for each of them, which says for each
    /// record whether it has the name.
    pub(super) with_presence: Arc<[String]>,
}

impl JsonFile {
    /// Returns the names that occur in the first records. The search ends at a record that cannot
    /// be read; reading the file reports that record.
    ///
    /// # Errors
    /// The errors of the store. `DATA_LOSS` for a compressed file that is damaged.
    pub(super) async fn names(&self) -> Result<Vec<String>> {
        let head = self.head().await.map_err(file_errors::explain_text_error)?;
        let records = serde_json::Deserializer::from_slice(&head)
            .into_iter::<BTreeMap<String, IgnoredAny>>()
            .take(NAME_SEARCH_RECORDS)
            .map_while(std::result::Result::ok);
        let names: BTreeSet<String> = records.flat_map(BTreeMap::into_keys).collect();
        Ok(names.into_iter().collect())
    }

    async fn head(&self) -> Result<Vec<u8>, DataFusionError> {
        let mut bytes = self.bytes().await?;
        let mut head = Vec::new();
        while head.len() < NAME_SEARCH_BYTES
            && let Some(chunk) = bytes.try_next().await?
        {
            head.extend_from_slice(&chunk);
        }
        Ok(head)
    }

    async fn bytes(&self) -> Result<ByteStream, DataFusionError> {
        let stored = self.store.get(&self.path).await?.into_stream();
        self.compression
            .convert_stream(stored.map_err(DataFusionError::from).boxed())
    }

    /// Returns the rows of the file, in batches of `batch_rows`.
    pub(super) fn rows(&self, reading: &JsonReading, batch_rows: usize) -> RowStream {
        let builder = ReaderBuilder::new(Arc::clone(&reading.schema))
            .with_batch_size(batch_rows)
            .with_coerce_primitive(true)
            .with_strict_mode(!reading.ignores_unknown);
        let (file, presence) = (self.clone(), Presence::new(reading));
        stream::once(async move { file.open(builder, presence).await })
            .try_flatten()
            .map_err(file_errors::explain_text_error)
            .boxed()
    }

    async fn open(
        self,
        builder: ReaderBuilder,
        presence: Option<Presence>,
    ) -> Result<BoxStream<'static, Result<RecordBatch, DataFusionError>>, DataFusionError> {
        let result = self.store.get(&self.path).await?;
        Ok(match result.payload {
            // A local file is read directly. The store would return it in small pieces, each from
            // another thread.
            GetResultPayload::File(file, _) if presence.is_some() => {
                let bytes = chunks(self.compression.convert_read(file)?);
                decode_records(builder.build_decoder()?, bytes, presence).boxed()
            }
            GetResultPayload::File(file, _) => {
                let reader = builder.build(BufReader::new(self.compression.convert_read(file)?))?;
                stream::iter(reader).map_err(DataFusionError::from).boxed()
            }
            GetResultPayload::Stream(stored) => {
                let stored = stored.map_err(DataFusionError::from).boxed();
                let bytes = self.compression.convert_stream(stored)?;
                decode_records(builder.build_decoder()?, bytes, presence).boxed()
            }
        })
    }
}

/// Finds out which records have which names. arrow-json reads a name that is missing as NULL.
struct Presence {
    names: Arc<[String]>,
    schema: SchemaRef,
    /// The bytes of the records of the next batch.
    records: Vec<u8>,
}

impl Presence {
    /// Returns `None` if no names are asked for.
    fn new(reading: &JsonReading) -> Option<Self> {
        if reading.with_presence.is_empty() {
            return None;
        }
        let fields = reading.schema.fields().iter().cloned();
        let added = reading.with_presence.iter();
        let added =
            added.map(|name| Arc::new(Field::new(format!("has {name}"), DataType::Boolean, false)));
        Some(Self {
            names: Arc::clone(&reading.with_presence),
            schema: Arc::new(Schema::new(fields.chain(added).collect::<Vec<_>>())),
            records: Vec::new(),
        })
    }

    /// Notes bytes that were decoded.
    fn note_decoded(&mut self, bytes: &[u8]) {
        self.records.extend_from_slice(bytes);
    }

    /// Adds the columns that say which records have which names, and begins the next batch.
    fn complete(&mut self, batch: &RecordBatch) -> Result<RecordBatch, DataFusionError> {
        let builder = || BooleanBuilder::with_capacity(batch.num_rows());
        let mut found: Vec<_> = self.names.iter().map(|_| builder()).collect();
        let records = serde_json::Deserializer::from_slice(&self.records);
        let records = records.into_iter::<BTreeMap<String, IgnoredAny>>();
        for record in records.take(batch.num_rows()) {
            let record = record.map_err(|error| {
                ArrowError::JsonError(format!("a record is not valid JSON: {error}"))
            })?;
            for (name, found) in self.names.iter().zip(&mut found) {
                found.append_value(record.contains_key(name));
            }
        }
        self.records.clear();
        let mut columns = batch.columns().to_vec();
        columns.extend(
            found
                .iter_mut()
                .map(|found| Arc::new(found.finish()) as ArrayRef),
        );
        Ok(RecordBatch::try_new(Arc::clone(&self.schema), columns)?)
    }
}

/// Reads a file in pieces.
fn chunks(mut file: impl Read + Send + 'static) -> ByteStream {
    let next = move || {
        let mut chunk = vec![0; CHUNK_BYTES];
        match file.read(&mut chunk) {
            Ok(0) => None,
            Ok(read) => {
                chunk.truncate(read);
                Some(Ok(Bytes::from(chunk)))
            }
            Err(error) => Some(Err(error.into())),
        }
    };
    stream::iter(std::iter::from_fn(next)).boxed()
}

/// Decodes records from a stream of bytes as the bytes arrive.
fn decode_records(
    decoder: Decoder,
    bytes: ByteStream,
    presence: Option<Presence>,
) -> impl Stream<Item = Result<RecordBatch, DataFusionError>> {
    let state = (decoder, bytes.fuse(), Bytes::new(), presence);
    stream::try_unfold(state, |state| async move {
        let (mut decoder, mut bytes, mut rest, mut presence) = state;
        loop {
            if rest.is_empty() {
                let Some(chunk) = bytes.try_next().await? else {
                    break;
                };
                rest = chunk;
            }
            let read = decoder.decode(&rest)?;
            if let Some(presence) = &mut presence {
                presence.note_decoded(&rest[..read]);
            }
            rest.advance(read);
            // The decoder leaves bytes unread only if a batch is full.
            if !rest.is_empty() {
                break;
            }
        }
        let Some(mut batch) = decoder.flush()? else {
            return Ok(None);
        };
        if let Some(presence) = &mut presence {
            batch = presence.complete(&batch)?;
        }
        Ok(Some((batch, (decoder, bytes, rest, presence))))
    })
}

#[cfg(test)]
mod tests {
    use arrow::array::AsArray;
    use arrow::datatypes::Int64Type;
    use object_store::PutPayload;
    use object_store::chunked::ChunkedStore;
    use object_store::memory::InMemory;

    use super::*;

    /// Creates a file in a store that returns it in pieces, as remote stores do.
    async fn file(text: &str, piece_bytes: usize) -> JsonFile {
        let store = InMemory::new();
        let path = Path::from("rows.json");
        let payload = PutPayload::from(text.as_bytes().to_vec());
        store.put(&path, payload).await.unwrap();
        JsonFile {
            store: Arc::new(ChunkedStore::new(Arc::new(store), piece_bytes)),
            path,
            compression: FileCompressionType::UNCOMPRESSED,
        }
    }

    fn reading(ignores_others: bool) -> JsonReading {
        let columns = vec![
            Field::new("k", DataType::Int64, true),
            Field::new("name", DataType::Utf8View, true),
        ];
        JsonReading {
            schema: Arc::new(Schema::new(columns)),
            ignores_unknown: ignores_others,
            with_presence: Arc::default(),
        }
    }

    async fn read(
        file: &JsonFile,
        reading: &JsonReading,
        batch_rows: usize,
    ) -> Result<Vec<RecordBatch>> {
        file.rows(reading, batch_rows).try_collect().await
    }

    #[tokio::test]
    async fn a_stream_is_read_in_batches_with_every_record() {
        let text = "{\"k\": 1}\n\n{\"k\": 2, \"name\": 1.50}\n".repeat(1_000);
        for (batch_rows, piece_bytes) in [(1, 64), (7, 5), (2_000, 1_000), (5_000, 1 << 20)] {
            let file = file(&text, piece_bytes).await;
            let batches = read(&file, &reading(false), batch_rows).await.unwrap();
            let rows: usize = batches.iter().map(RecordBatch::num_rows).sum();
            assert_eq!(rows, 2_000);
            assert!(batches.iter().all(|batch| batch.num_rows() <= batch_rows));
            let last = batches.last().unwrap();
            let at = last.num_rows() - 1;
            assert_eq!(last.column(0).as_primitive::<Int64Type>().value(at), 2);
            assert_eq!(last.column(1).as_string_view().value(at), "1.50");
        }
    }

    #[tokio::test]
    async fn an_unknown_name_is_refused_wherever_it_occurs() {
        let text = format!("{}{{\"k\": 1, \"tag\": 1}}\n", "{\"k\": 1}\n".repeat(5_000));
        let file = file(&text, 1_000).await;
        let error = read(&file, &reading(false), 1_024).await.unwrap_err();
        assert_eq!(
            file_errors::unknown_column_name(&error),
            Some("tag"),
            "{error}"
        );
        read(&file, &reading(true), 1_024).await.unwrap();
    }

    #[tokio::test]
    async fn names_are_those_of_the_first_records_that_can_be_read() {
        let many = format!(
            "{}{{\"late\": 1}}",
            "{\"k\": 1}\n".repeat(NAME_SEARCH_RECORDS)
        );
        assert_eq!(file(&many, 1_000).await.names().await.unwrap(), ["k"]);
        let cut = file("{\"k\": 1, \"name\": {\"of\": []}}\n{\"late\": ", 8).await;
        assert_eq!(cut.names().await.unwrap(), ["k", "name"]);
        assert!(read(&cut, &reading(true), 1_024).await.is_err());
    }

    #[tokio::test]
    async fn a_large_file_is_not_held_for_its_names() {
        let text = format!("{{\"k\": \"{}\"}}\n", "x".repeat(1_000)).repeat(3_000);
        let file = file(&text, 10_000).await;
        let head = file.head().await.unwrap();
        assert!(head.len() < NAME_SEARCH_BYTES + 10_000, "{}", head.len());
        assert_eq!(file.names().await.unwrap(), ["k"]);
    }
}
