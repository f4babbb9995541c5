/// Tests rows that go to the log.
pub(crate) mod logged;

use std::fs::File;
use std::path::Path;

use arrow::array::{
    ArrayRef, AsArray, Float64Array, Int64Array, StringViewArray, TimestampSecondArray, UInt32Array,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Float64Type, Int64Type, Schema, SchemaRef, TimeUnit};
use futures::stream;
use parquet::arrow::arrow_reader::ParquetRecordBatchReaderBuilder;
use tempfile::TempDir;
use volary_flight_proto::ipc;
use volary_flight_proto::snapshot::Snapshot;
use volary_flight_proto::write::{SHARD_COLUMN, TableDescription};
use volary_node::memory;
use volary_node::runtimes::OwnedRuntimes;
use volary_node::size::MemorySize;

use super::*;
use volary_flight_proto::ids::TableId;
use volary_node::disk::LocalDisk;

pub(crate) const SHARDS: u32 = 4;

pub(crate) struct Worker {
    pub(crate) context: WriteContext,
    pub(crate) dir: TempDir,
    _runtimes: OwnedRuntimes,
}

pub(crate) fn worker(memory: u64) -> Worker {
    let dir = tempfile::tempdir().unwrap();
    let runtimes = OwnedRuntimes::start(Some(2)).unwrap();
    let limits = memory::Config {
        limit: MemorySize::Bytes(memory),
        ..memory::Config::default()
    };
    let context = WriteContext {
        storage: Storage::open(dir.path(), Arc::new(LocalDisk)).unwrap(),
        // All rows go to segments.
        config: config::StorageConfig {
            logged_write: MemorySize::Bytes(0),
            ..config::StorageConfig::default()
        },
        parallelism: 3,
        runtime_env: memory::runtime_env(&limits, dir.path(), 0).unwrap(),
        runtimes: runtimes.handles().clone(),
        totals: Arc::default(),
    };
    Worker {
        context,
        dir,
        _runtimes: runtimes,
    }
}

pub(crate) fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("name", DataType::Utf8View, true),
        Field::new("value", DataType::Float64, true),
        Field::new("at", DataType::Timestamp(TimeUnit::Second, None), true),
    ]))
}

pub(crate) fn request(schema: &Schema, sharded: bool) -> WriteRequest {
    WriteRequest {
        write_id: 7,
        table: Some(TableDescription {
            table_id: 3,
            name: "measured".to_owned(),
            schema: ipc::schema_to_bytes(schema),
            shard_key: sharded.then_some(0),
            is_sharded: sharded,
            sort_key: if sharded { vec![0] } else { vec![] },
            shards: if sharded { SHARDS } else { 1 },
        }),
        ..WriteRequest::default()
    }
}

fn shard_of(key: i64) -> u32 {
    u32::try_from(key % i64::from(SHARDS)).unwrap()
}

/// Returns the time of the row with this key, in seconds. Some rows have no time.
pub(crate) fn time_of(key: i64) -> Option<i64> {
    (key % 11 != 0).then_some(key)
}

/// Builds rows with these keys, and with the shards that the rows go to.
pub(crate) fn rows(keys: &[i64]) -> RecordBatch {
    let name = |key: &i64| (key % 5 != 0).then(|| format!("the name of number {key}"));
    let shard = UInt32Array::from_iter_values(keys.iter().map(|key| shard_of(*key)));
    let at = keys.iter().map(|key| time_of(*key));
    let columns: [(&str, ArrayRef, bool); 5] = [
        ("key", Arc::new(Int64Array::from(keys.to_vec())), false),
        (
            "name",
            Arc::new(StringViewArray::from_iter(keys.iter().map(name))),
            true,
        ),
        (
            "value",
            Arc::new(Float64Array::from_iter_values(
                keys.iter().map(|key| *key as f64),
            )),
            true,
        ),
        ("at", Arc::new(TimestampSecondArray::from_iter(at)), true),
        (SHARD_COLUMN, Arc::new(shard), false),
    ];
    RecordBatch::try_from_iter_with_nullable(columns).unwrap()
}

/// Builds rows of the numbers below `count`, in no order, in batches.
fn shuffled(count: i64, batch: usize) -> Vec<RecordBatch> {
    // 7,919 is prime, and does not divide the counts that are used here.
    let keys: Vec<i64> = (0..count).map(|n| n * 7919 % count).collect();
    keys.chunks(batch).map(rows).collect()
}

pub(crate) async fn write_all(
    worker: &Worker,
    request: WriteRequest,
    batches: Vec<Result<RecordBatch>>,
) -> Result<WriteResult> {
    write(&worker.context, request, stream::iter(batches)).await
}

fn segments(worker: &Worker, shard: u32) -> Vec<Arc<Segment>> {
    let snapshot = Snapshot {
        high: 7,
        ..Snapshot::default()
    };
    worker
        .context
        .storage
        .segments(TableId(3), shard, &snapshot, None)
        .unwrap()
}

pub(crate) fn reader(path: &Path) -> ParquetRecordBatchReaderBuilder<File> {
    ParquetRecordBatchReaderBuilder::try_new(File::open(path).unwrap()).unwrap()
}

fn read(path: &Path) -> RecordBatch {
    let reader = reader(path).build().unwrap();
    let batches = reader.collect::<Result<Vec<_>, _>>().unwrap();
    concat_batches(&batches[0].schema(), &batches).unwrap()
}

pub(crate) fn files_below(path: &Path) -> usize {
    let entries = std::fs::read_dir(path)
        .into_iter()
        .flatten()
        .map(|entry| entry.unwrap().path());
    entries
        .map(|path| if path.is_dir() { files_below(&path) } else { 1 })
        .sum()
}

#[tokio::test]
async fn every_row_is_in_its_shard_sorted_and_in_plain_parquet() {
    let worker = worker(256 << 20);
    let batches = shuffled(20_000, 999).into_iter().map(Ok).collect();
    let written = write_all(&worker, request(&schema(), true), batches)
        .await
        .unwrap();
    assert_eq!(written.shards.len(), SHARDS as usize);
    for shard in &written.shards {
        assert_eq!((shard.rows, shard.segments), (5_000, 1));
        let segments = segments(&worker, shard.shard);
        assert_eq!(
            segments.iter().map(|segment| segment.bytes()).sum::<u64>(),
            shard.bytes
        );
        let path = segments[0].path();
        let read = read(path);
        let keys = read.column(0).as_primitive::<Int64Type>().values();
        let expected: Vec<i64> = (0..20_000)
            .filter(|key| shard_of(*key) == shard.shard)
            .collect();
        assert_eq!(keys[..], expected);
        // Names come as Utf8, which every reader knows. The shard is in the path only.
        assert_eq!(read.schema().field(1).data_type(), &DataType::Utf8);
        assert_eq!(read.num_columns(), 4);
        assert_eq!(
            read.column(1).as_string::<i32>().value(4),
            format!("the name of number {}", keys[4])
        );

        let metadata = reader(path).metadata().clone();
        assert!(
            metadata
                .file_metadata()
                .created_by()
                .unwrap()
                .starts_with("volary version")
        );
        let entries = metadata.file_metadata().key_value_metadata().unwrap();
        let format = entries.iter().find(|entry| entry.key == "volary.format");
        assert_eq!(format.unwrap().value.as_deref(), Some("1"));
        let group = metadata.row_group(0);
        assert_eq!(group.sorting_columns().unwrap()[0].column_idx, 0);
        for (column, field) in group.columns().iter().zip(read.schema().fields()) {
            // Floats have no bounds: bounds would leave NaN out, and queries do not.
            let bounded = !field.data_type().is_floating();
            assert_eq!(column.column_index_offset().is_some(), bounded, "{field}");
            assert_eq!(column.statistics().is_some(), bounded, "{field}");
            assert!(column.offset_index_offset().is_some());
        }
        let has_bloom_filter = |column: usize| group.column(column).bloom_filter_offset().is_some();
        assert_eq!([0, 1, 2].map(has_bloom_filter), [true, false, false]);
    }
}

#[tokio::test]
async fn rows_that_do_not_fit_into_memory_are_spilled() {
    let worker = worker(16 << 20);
    let batches = shuffled(500_000, 8_192).into_iter().map(Ok).collect();
    let written = write_all(&worker, request(&schema(), true), batches)
        .await
        .unwrap();
    assert_eq!(
        written.shards.iter().map(|shard| shard.rows).sum::<u64>(),
        500_000
    );
    let read = read(segments(&worker, 1)[0].path());
    assert!(
        read.column(0)
            .as_primitive::<Int64Type>()
            .values()
            .is_sorted()
    );
}

#[tokio::test]
async fn rows_sorted_in_memory_and_spilled_rows_are_in_the_same_order() {
    let mut written = Vec::new();
    for memory in [256 << 20, 16 << 20] {
        let worker = worker(memory);
        let mut request = request(&schema(), true);
        // The rows are sorted by names, which contain NULLs.
        request.table.as_mut().unwrap().sort_key = vec![1, 0];
        let batches = shuffled(300_000, 8_192).into_iter().map(Ok).collect();
        write_all(&worker, request, batches).await.unwrap();
        written.push(read(segments(&worker, 1)[0].path()));
    }
    assert_eq!(written[0].num_rows(), 75_000);
    assert_eq!(written[0], written[1]);
}

#[tokio::test]
async fn a_shard_goes_on_in_another_file_when_one_is_large_enough() {
    let mut worker = worker(256 << 20);
    worker.context.config.segment = MemorySize::Bytes(16 << 10);
    worker.context.config.row_group_rows = 500;
    // The sort's batches are smaller than a shard. So a file ends between two of them.
    let batches = shuffled(100_000, 1_000).into_iter().map(Ok).collect();
    let written = write_all(&worker, request(&schema(), true), batches)
        .await
        .unwrap();
    let segments = segments(&worker, 2);
    assert!(segments.len() > 1);
    assert_eq!(written.shards[2].segments as usize, segments.len());
    assert_eq!(
        segments.iter().map(|segment| segment.rows()).sum::<u64>(),
        25_000
    );
    assert!(
        reader(segments[0].path())
            .metadata()
            .row_group(0)
            .num_rows()
            <= 500
    );
}

#[tokio::test]
async fn a_reference_table_keeps_its_rows_in_shard_0_in_their_order() {
    let worker = worker(256 << 20);
    let mut batch = rows(&[5, 3, 8]);
    batch.remove_column(4);
    let written = write_all(&worker, request(&schema(), false), vec![Ok(batch)])
        .await
        .unwrap();
    assert_eq!(written.shards.len(), 1);
    let read = read(segments(&worker, 0)[0].path());
    assert_eq!(
        read.column(0).as_primitive::<Int64Type>().values()[..],
        [5, 3, 8]
    );
}

#[tokio::test]
async fn the_result_says_what_the_columns_hold() {
    let worker = worker(256 << 20);
    let batches = vec![Ok(rows(&[9, 5, 12])), Ok(rows(&[10, 1]))];
    let written = write_all(&worker, request(&schema(), true), batches)
        .await
        .unwrap();
    let nulls: Vec<u64> = written.columns.iter().map(|column| column.nulls).collect();
    assert_eq!(nulls, [0, 2, 0, 0]);
    let has_bounds = written.columns.iter().map(|column| column.has_bounds);
    assert_eq!(has_bounds.collect::<Vec<_>>(), [true, true, true, true]);
    let (_, bounds) = ipc::batches_from_bytes(&written.bounds).unwrap();
    let [bounds] = bounds.as_slice() else {
        panic!("{} batches", bounds.len());
    };
    let keys = bounds.column(0).as_primitive::<Int64Type>();
    assert_eq!(keys.values()[..], [1, 12]);
    let names = bounds.column(1).as_string_view();
    assert_eq!(names.value(1), "the name of number 9");
    let numbers = bounds.column(2).as_primitive::<Float64Type>();
    assert_eq!(numbers.values()[..], [1.0, 12.0]);
}

#[tokio::test]
async fn bounds_that_are_unknown_or_long_are_left_out() {
    let worker = worker(256 << 20);
    let schema = Schema::new(vec![
        Field::new("key", DataType::Int64, true),
        Field::new("name", DataType::Utf8View, true),
    ]);
    let columns: [(&str, ArrayRef); 2] = [
        ("key", Arc::new(Int64Array::from(vec![None, None]))),
        (
            "name",
            Arc::new(StringViewArray::from(vec!["a".to_owned(), "x".repeat(65)])),
        ),
    ];
    let batch = RecordBatch::try_from_iter(columns).unwrap();
    let written = write_all(&worker, request(&schema, false), vec![Ok(batch)])
        .await
        .unwrap();
    assert_eq!(written.columns[0].nulls, 2);
    assert!(written.columns.iter().all(|column| !column.has_bounds));
    assert!(written.bounds.is_empty());
}

#[tokio::test]
async fn rows_that_do_not_fit_the_table_are_refused_by_column() {
    let worker = worker(256 << 20);
    let good = rows(&[1, 2]);
    let with = |position: usize, array: ArrayRef| {
        let mut columns = good.columns().to_vec();
        columns[position] = array;
        let names = ["key", "name", "value", "at", SHARD_COLUMN];
        let columns = names
            .into_iter()
            .zip(columns)
            .map(|(name, array)| (name, array, true));
        RecordBatch::try_from_iter_with_nullable(columns).unwrap()
    };
    for (batch, column) in [
        (
            with(0, Arc::new(Float64Array::from(vec![1.0, 2.0]))),
            "column key",
        ),
        (
            with(0, Arc::new(Int64Array::from(vec![Some(1), None]))),
            "column key",
        ),
        (with(4, Arc::new(UInt32Array::from(vec![0, 4]))), "shard 4"),
        (good.project(&[0, 1, 2, 3]).unwrap(), "4 columns"),
    ] {
        let error = write_all(&worker, request(&schema(), true), vec![Ok(batch)])
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::InvalidArgument);
        assert!(error.message().contains(column), "{error}");
        assert!(error.message().contains("table measured"), "{error}");
    }
    assert_eq!(files_below(&worker.dir.path().join("tables")), 0);
}

#[tokio::test]
async fn a_write_that_fails_midway_leaves_nothing() {
    let worker = worker(256 << 20);
    // Without a sort, rows are written as they come, before the error is known.
    let mut batch = rows(&[5, 3, 8]);
    batch.remove_column(4);
    let batches = vec![Ok(batch), Err(Error::unavailable("the gateway is gone"))];
    let error = write_all(&worker, request(&schema(), false), batches)
        .await
        .unwrap_err();
    assert_eq!(error.code(), ErrorCode::Unavailable);
    assert!(segments(&worker, 0).is_empty());
    worker.context.storage.await_deletions();
    assert_eq!(files_below(&worker.dir.path().join("tables")), 0);
}

#[tokio::test]
async fn a_write_of_no_rows_is_one() {
    let worker = worker(256 << 20);
    let written = write_all(&worker, request(&schema(), true), vec![])
        .await
        .unwrap();
    assert!(written.shards.is_empty());
    assert_eq!(written.columns.len(), 4);
}
