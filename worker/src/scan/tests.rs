use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use datafusion::arrow::array::{
    ArrayRef, Date32Array, Decimal128Array, Float64Array, Int32Array, Int64Array, ListArray,
    RecordBatch, StringViewArray,
};
use datafusion::arrow::compute::{cast, concat_batches};
use datafusion::arrow::datatypes::{DataType, Field, Int32Type, Schema, SchemaRef, TimeUnit};
use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::common::ScalarValue;
use datafusion::config::TableParquetOptions;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::{
    FileGroup, FileScanConfigBuilder, FileSource, ParquetSource,
};
use datafusion::datasource::source::DataSourceExec;
use datafusion::execution::TaskContext;
use datafusion::execution::object_store::ObjectStoreUrl;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    Column, DynamicFilterPhysicalExpr, IsNotNullExpr, binary, lit,
};
use datafusion::physical_expr_common::physical_expr::PhysicalExpr;
use datafusion::physical_plan::filter::FilterExec;
use datafusion::physical_plan::{ExecutionPlan, collect};
use object_store::ObjectMeta;
use parquet::arrow::ArrowWriter;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;
use volary_flight_proto::{Error, ErrorCode};

use super::SegmentSource;
use super::decoded::DecodedSegments;
use super::pruning::Pruning;
use crate::fragment::filtered_scan::push_filter_into_scan;
use crate::fragment::optimize::{optimize, session_config};
use crate::memory_cache::DecodedMemory;
use crate::segment::SegmentReaders;

fn schema() -> SchemaRef {
    let item = Arc::new(Field::new_list_field(DataType::Int32, true));
    Arc::new(Schema::new(vec![
        Field::new("key", DataType::Int64, false),
        Field::new("name", DataType::Utf8View, true),
        Field::new("price", DataType::Decimal128(12, 2), true),
        Field::new("day", DataType::Date32, true),
        Field::new("seen", DataType::List(item), true),
        Field::new("ratio", DataType::Float64, true),
    ]))
}

/// Builds `count` rows, with every second key from `first` on.
fn rows(first: i64, count: i64) -> RecordBatch {
    let keys: Vec<i64> = (0..count).map(|row| first + 2 * row).collect();
    let some = |modulus: i64| move |key: &i64| (key % modulus != 0).then_some(*key);
    let names = keys.iter().map(some(10));
    let names = names.map(|key| key.map(|key| format!("bird {key} of many")));
    let prices: Decimal128Array = keys
        .iter()
        .map(some(14))
        .map(|key| key.map(i128::from))
        .collect();
    let days: Date32Array = keys
        .iter()
        .map(some(6))
        .map(|key| key.map(|key| (key % 1000) as i32))
        .collect();
    let lists = keys.iter().map(some(22));
    let lists = lists.map(|key| key.map(|key| (0..key % 4).map(|item| Some(item as i32))));
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(keys.clone())),
        Arc::new(names.collect::<StringViewArray>()),
        Arc::new(prices.with_precision_and_scale(12, 2).unwrap()),
        Arc::new(days),
        Arc::new(ListArray::from_iter_primitive::<Int32Type, _, _>(lists)),
        Arc::new(Float64Array::from_iter(
            keys.iter().map(|key| Some(*key as f64 / 8.0)),
        )),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// Writes a batch to a file, as segments are written: the file stores views as plain text or bytes.
/// The file has no format number, like files of earlier releases.
fn write(
    directory: &Path,
    name: &str,
    batch: &RecordBatch,
    row_group_rows: usize,
) -> PartitionedFile {
    let path = directory.join(name);
    let in_file = |column: &ArrayRef| match column.data_type() {
        DataType::Utf8View => cast(column, &DataType::Utf8).unwrap(),
        DataType::BinaryView => cast(column, &DataType::Binary).unwrap(),
        _ => Arc::clone(column),
    };
    let columns: Vec<ArrayRef> = batch.columns().iter().map(in_file).collect();
    let names = batch.schema();
    let columns = names.fields().iter().zip(columns);
    let columns = columns.map(|(field, column)| (field.name(), column, field.is_nullable()));
    let batch = RecordBatch::try_from_iter_with_nullable(columns).unwrap();
    let properties = WriterProperties::builder()
        .set_max_row_group_row_count(Some(row_group_rows))
        .set_column_bloom_filter_enabled(ColumnPath::from("key"), true)
        .build();
    write_file(&path, &batch, properties)
}

fn write_file(path: &Path, batch: &RecordBatch, properties: WriterProperties) -> PartitionedFile {
    let file = File::create(path).unwrap();
    let mut writer = ArrowWriter::try_new(file, batch.schema(), Some(properties)).unwrap();
    writer.write(batch).unwrap();
    writer.close().unwrap();
    PartitionedFile::new_from_meta(ObjectMeta {
        location: object_store::path::Path::from_absolute_path(path).unwrap(),
        last_modified: chrono::DateTime::UNIX_EPOCH,
        size: std::fs::metadata(path).unwrap().len(),
        e_tag: None,
        version: None,
    })
}

/// Segments, and what is needed to read them.
struct Fixture {
    schema: SchemaRef,
    files: Vec<PartitionedFile>,
    task: Arc<TaskContext>,
    directory: tempfile::TempDir,
}

/// A query over the segments.
#[derive(Debug, Clone)]
struct Query {
    projection: Vec<usize>,
    filter: Option<Arc<dyn PhysicalExpr>>,
    late_materialisation: bool,
}

impl Fixture {
    fn new(write_all: impl FnOnce(&Path) -> Vec<PartitionedFile>) -> Self {
        Self::of(schema(), write_all)
    }

    fn of(schema: SchemaRef, write_all: impl FnOnce(&Path) -> Vec<PartitionedFile>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = session_config(1000, 1);
        Self {
            schema,
            files: write_all(directory.path()),
            task: Arc::new(TaskContext::default().with_session_config(config)),
            directory,
        }
    }

    fn plan(&self, query: &Query, as_segments: bool) -> Arc<dyn ExecutionPlan> {
        let scan = self.scan(query, as_segments);
        let plan = match &query.filter {
            Some(filter) => Arc::new(FilterExec::try_new(Arc::clone(filter), scan).unwrap()),
            None => scan,
        };
        optimize(plan, self.task.session_config().options()).unwrap()
    }

    fn scan(&self, query: &Query, as_segments: bool) -> Arc<dyn ExecutionPlan> {
        let store = ObjectStoreUrl::local_filesystem();
        let env = self.task.runtime_env();
        let readers = Arc::new(SegmentReaders::new(
            env.object_store(&store).unwrap(),
            env.cache_manager.get_file_metadata_cache(),
        ));
        let parquet = ParquetSource::new(Arc::clone(&self.schema))
            .with_table_parquet_options(TableParquetOptions::default())
            .with_pushdown_filters(query.late_materialisation);
        let source: Arc<dyn FileSource> = if as_segments {
            let factory = Arc::<SegmentReaders>::clone(&readers);
            let parquet = parquet.with_parquet_file_reader_factory(factory);
            let decoded = DecodedMemory::new(0, 0, &env.memory_pool);
            let decoded = Arc::new(DecodedSegments::new(decoded));
            Arc::new(SegmentSource::new(parquet, readers, decoded))
        } else {
            Arc::new(parquet)
        };
        let config = FileScanConfigBuilder::new(store, source)
            .with_file_groups(vec![FileGroup::new(self.files.clone())])
            .with_projection_indices(Some(query.projection.clone()))
            .unwrap()
            .build();
        DataSourceExec::from_data_source(config)
    }

    /// Runs a plan, and returns its schema and its rows.
    async fn run(&self, plan: Arc<dyn ExecutionPlan>) -> (SchemaRef, String) {
        let schema = plan.schema();
        let batches = collect(plan, Arc::clone(&self.task)).await.unwrap();
        let all = concat_batches(&schema, &batches).unwrap();
        let shown = pretty_format_batches(std::slice::from_ref(&all)).unwrap();
        (schema, format!("{} rows\n{shown}", all.num_rows()))
    }

    /// Checks that the scan returns the same rows as DataFusion's own source. The scan runs twice:
    /// the second time, the metadata of the files is cached. If the filter can be decoded into the
    /// scan, that scan is checked, too. Returns the plan of the second run.
    async fn check(&self, query: &Query) -> Arc<dyn ExecutionPlan> {
        let expected = self.run(self.plan(query, false)).await;
        let first = self.run(self.plan(query, true)).await;
        assert_eq!(first, expected, "{query:?}");
        let plan = self.plan(query, true);
        assert_eq!(self.run(Arc::clone(&plan)).await, expected, "{query:?}");
        if let (Some(filter), true) = (&query.filter, query.late_materialisation) {
            let scan = self.scan(query, true);
            let all: Vec<usize> = (0..scan.schema().fields().len()).collect();
            if let Some(filtered) = push_filter_into_scan(&scan, filter, &all).unwrap() {
                assert!(!plan.is::<FilterExec>(), "{query:?}");
                assert_eq!(self.run(filtered).await, expected, "{query:?}");
            } else {
                assert!(plan.is::<FilterExec>(), "{query:?}");
            }
        }
        plan
    }
}

/// Returns the sum of a metric over the plan and everything below it.
fn counted(plan: &Arc<dyn ExecutionPlan>, name: &str) -> usize {
    let own = plan.metrics().and_then(|metrics| metrics.sum_by_name(name));
    let own = own.map_or(0, |value| value.as_usize());
    let below = plan
        .children()
        .into_iter()
        .map(|child| counted(child, name));
    own + below.sum::<usize>()
}

fn compared(
    column: &str,
    at: usize,
    operator: Operator,
    value: ScalarValue,
) -> Arc<dyn PhysicalExpr> {
    let column = Arc::new(Column::new(column, at));
    binary(column, operator, lit(value), &schema()).unwrap()
}

fn key_is(key: i64) -> Arc<dyn PhysicalExpr> {
    compared("key", 0, Operator::Eq, ScalarValue::Int64(Some(key)))
}

/// Writes two small segments, a large one, and one with several row groups.
fn of_all_sizes(directory: &Path) -> Vec<PartitionedFile> {
    vec![
        write(directory, "a", &rows(0, 10), 100_000),
        write(directory, "b", &rows(20, 5_000), 100_000),
        write(directory, "c", &rows(20_000, 40_000), 100_000),
        write(directory, "d", &rows(200_000, 300), 100),
    ]
}

#[tokio::test]
async fn rows_are_those_of_the_parquet_source() {
    let fixture = Fixture::new(of_all_sizes);
    let eq = |value: &str| {
        compared(
            "name",
            1,
            Operator::Eq,
            ScalarValue::Utf8View(Some(value.to_owned())),
        )
    };
    let filters = [
        None,
        Some(key_is(24)),
        Some(key_is(200_100)),
        Some(compared(
            "key",
            0,
            Operator::Lt,
            ScalarValue::Int64(Some(64)),
        )),
        Some(compared(
            "key",
            0,
            Operator::Gt,
            ScalarValue::Int64(Some(99_980)),
        )),
        Some(eq("bird 22 of many")),
        Some(eq("a bird that is not there")),
    ];
    let projections = [vec![0, 1, 2, 3, 4, 5], vec![0, 1], vec![0, 1, 5, 4]];
    for filter in filters {
        for projection in projections.clone() {
            for late_materialisation in [false, true] {
                let query = Query {
                    projection: projection.clone(),
                    filter: filter.clone(),
                    late_materialisation,
                };
                fixture.check(&query).await;
            }
        }
    }
    // These queries read no column at all, or only a nested one.
    for projection in [vec![], vec![4]] {
        let query = Query {
            projection,
            filter: None,
            late_materialisation: false,
        };
        let plan = fixture.check(&query).await;
        assert_eq!(counted(&plan, "small_segments"), 2);
    }
}

#[tokio::test]
async fn small_segments_without_a_row_of_interest_are_not_read() {
    let fixture = Fixture::new(|directory| {
        vec![
            write(directory, "a", &rows(0, 2_000), 100_000),
            write(directory, "b", &rows(4_000, 2_000), 100_000),
        ]
    });
    for late_materialisation in [false, true] {
        let of = |key| Query {
            projection: vec![0, 1],
            filter: Some(key_is(key)),
            late_materialisation,
        };
        // For the first key, bounds exclude both segments. For each odd key, a bloom filter
        // excludes the segment that bounds do not exclude.
        for (key, read) in [(-2, 0), (1_000, 1), (4_008, 1), (1_001, 0), (4_009, 0)] {
            let plan = fixture.check(&of(key)).await;
            assert_eq!(counted(&plan, "small_segments"), read, "{key}");
        }
    }
}

#[tokio::test]
async fn a_few_tiny_segments_are_read_without_a_look_at_their_statistics() {
    let fixture = Fixture::new(|directory| {
        let segment =
            |number: i64| write(directory, &number.to_string(), &rows(100 * number, 10), 100);
        (0..10).map(segment).collect()
    });
    let query = Query {
        projection: vec![0, 1],
        filter: Some(key_is(908)),
        late_materialisation: true,
    };
    let plan = fixture.check(&query).await;
    // The scan reads the first two segments, and the one that has the row.
    assert_eq!(counted(&plan, "small_segments"), 3);
}

/// A Parquet scan accepts the whole filter, but cannot apply a part of it: an element of a list is
/// not a column.
#[tokio::test]
async fn no_part_of_a_filter_is_lost() {
    let fixture = Fixture::new(of_all_sizes);
    let schema = schema();
    let name = Arc::new(Column::new("name", 1));
    let named: Arc<dyn PhysicalExpr> = Arc::new(IsNotNullExpr::new(name));
    let seen = Arc::new(Column::new("seen", 4));
    let list = seen.data_type(&schema).unwrap();
    let nothing = ScalarValue::try_new_null(&list).unwrap();
    let seen = binary(seen, Operator::IsDistinctFrom, lit(nothing), &schema).unwrap();
    let both = binary(named, Operator::And, seen, &schema).unwrap();
    for first in [key_is(24), key_is(20_004)] {
        let filter = binary(first, Operator::And, Arc::clone(&both), &schema).unwrap();
        for late_materialisation in [false, true] {
            let query = Query {
                projection: vec![0, 1, 2, 3, 4, 5],
                filter: Some(Arc::clone(&filter)),
                late_materialisation,
            };
            fixture.check(&query).await;
        }
    }
}

/// A row that one conjunct excludes is not passed to the next conjunct.
#[tokio::test]
async fn conjuncts_are_asked_one_after_another() {
    let fixture = Fixture::new(of_all_sizes);
    let schema = schema();
    let integer = |value| lit(ScalarValue::Int64(Some(value)));
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("key", 0));
    // The key 0 exists.
    let quotient = binary(integer(1_000), Operator::Divide, Arc::clone(&key), &schema).unwrap();
    let divided = binary(quotient, Operator::Gt, integer(10), &schema).unwrap();
    let not_zero = binary(key, Operator::NotEq, integer(0), &schema).unwrap();
    let name = compared(
        "name",
        1,
        Operator::NotEq,
        ScalarValue::Utf8View(Some("bird 8 of many".to_owned())),
    );
    let filter = binary(name, Operator::And, not_zero, &schema).unwrap();
    let filter = binary(filter, Operator::And, divided, &schema).unwrap();
    let query = Query {
        projection: vec![0, 1],
        filter: Some(filter),
        late_materialisation: true,
    };
    fixture.check(&query).await;
}

/// Tests the types that columns of tables may have. Each column is read in one go, and comes as the
/// Parquet source returns it.
#[tokio::test]
async fn all_types_of_columns_are_read() {
    let unit = [
        TimeUnit::Second,
        TimeUnit::Millisecond,
        TimeUnit::Microsecond,
        TimeUnit::Nanosecond,
    ];
    let mut types = vec![
        DataType::Boolean,
        DataType::Int8,
        DataType::UInt16,
        DataType::UInt32,
        DataType::UInt64,
        DataType::Float32,
        DataType::Date64,
        DataType::Time32(TimeUnit::Second),
        DataType::Time32(TimeUnit::Millisecond),
        DataType::Time64(TimeUnit::Microsecond),
        DataType::Time64(TimeUnit::Nanosecond),
        DataType::Decimal128(38, 4),
        DataType::Decimal256(50, 4),
        DataType::Utf8View,
        DataType::BinaryView,
    ];
    types.extend(unit.map(|unit| DataType::Timestamp(unit, None)));
    types.extend(unit.map(|unit| DataType::Timestamp(unit, Some("Europe/Berlin".into()))));
    types.extend(unit.map(DataType::Duration));
    for of_column in types {
        let numbers: ArrayRef = Arc::new(Int64Array::from_iter(
            (0..50).map(|row| (row % 7 != 0).then_some(row)),
        ));
        let texts = || cast(&numbers, &DataType::Utf8).unwrap();
        let values = match &of_column {
            DataType::BinaryView => cast(&texts(), &of_column).unwrap(),
            DataType::Date64 => cast(
                &cast(
                    &cast(&numbers, &DataType::Int32).unwrap(),
                    &DataType::Date32,
                )
                .unwrap(),
                &of_column,
            )
            .unwrap(),
            DataType::Int8 | DataType::UInt16 | DataType::Time32(_) => {
                cast(&cast(&numbers, &DataType::Int32).unwrap(), &of_column).unwrap()
            }
            _ => cast(&numbers, &of_column).unwrap(),
        };
        let schema: SchemaRef = Arc::new(Schema::new(vec![
            Field::new("n", DataType::Int64, true),
            Field::new("value", of_column.clone(), true),
        ]));
        let batch = RecordBatch::try_new(Arc::clone(&schema), vec![numbers, values]).unwrap();
        let fixture = Fixture::of(schema, |directory| {
            vec![write(directory, "a", &batch, 100_000)]
        });
        let query = Query {
            projection: vec![1, 0],
            filter: None,
            late_materialisation: false,
        };
        let plan = fixture.check(&query).await;
        assert_eq!(counted(&plan, "small_segments"), 1, "{of_column}");
    }
}

#[test]
fn filters_that_change_while_a_query_runs_are_followed() {
    let key: Arc<dyn PhysicalExpr> = Arc::new(Column::new("key", 0));
    let dynamic = Arc::new(DynamicFilterPhysicalExpr::new(vec![key], lit(true)));
    let filter: Arc<dyn PhysicalExpr> = Arc::<DynamicFilterPhysicalExpr>::clone(&dynamic);
    let pruning = Pruning::new(Some(filter), schema(), 20);
    assert!(pruning.current().is_none());
    for key in [20, 10] {
        dynamic.update(key_is(key)).unwrap();
        let current = pruning.current().unwrap();
        assert!(current.orig_expr().to_string().contains(&key.to_string()));
    }
}

#[tokio::test]
async fn a_segment_of_other_types_is_left_to_the_parquet_source() {
    let fixture = Fixture::new(|directory| {
        // The segments have enough rows for bloom filters to be used. The bloom filter of the
        // narrow column hashes values of another width.
        let batch = rows(0, 2_000);
        let narrow: Int32Array = (0..2_000).map(|row| Some(2 * row)).collect();
        let mut columns = batch.columns().to_vec();
        columns[0] = Arc::new(narrow);
        let mut fields: Vec<_> = schema()
            .fields()
            .iter()
            .map(|field| field.as_ref().clone())
            .collect();
        fields[0] = Field::new("key", DataType::Int32, false);
        let narrow = RecordBatch::try_new(Arc::new(Schema::new(fields)), columns).unwrap();
        vec![
            write(directory, "narrow", &narrow, 100_000),
            write(directory, "usual", &batch, 100_000),
        ]
    });
    let query = Query {
        projection: vec![0, 1],
        filter: Some(key_is(24)),
        late_materialisation: true,
    };
    let plan = fixture.check(&query).await;
    assert_eq!(counted(&plan, "small_segments"), 1);
}

#[tokio::test]
async fn a_damaged_segment_is_an_error() {
    let fixture = Fixture::new(|directory| vec![write(directory, "a", &rows(0, 1000), 100_000)]);
    let query = Query {
        projection: vec![0, 1],
        filter: None,
        late_materialisation: false,
    };
    fixture.check(&query).await;
    let path = fixture.directory.path().join("a");
    let mut bytes = std::fs::read(&path).unwrap();
    let third = bytes.len() / 3;
    bytes[4..third].fill(0xff);
    std::fs::write(&path, bytes).unwrap();
    let scan = fixture.plan(&query, true);
    let error = collect(scan, Arc::clone(&fixture.task)).await.unwrap_err();
    let file = format!("segment {} cannot be read", path.display());
    assert!(error.to_string().contains(&file), "{error}");
}

#[tokio::test]
async fn a_segment_of_a_newer_format_is_refused_by_name() {
    let fixture = Fixture::of(schema(), |directory| {
        let of_format = |format: u32| {
            let path = directory.join(format!("format_{format}"));
            let entry = KeyValue::new("volary.format".to_owned(), format.to_string());
            let properties = WriterProperties::builder()
                .set_created_by("volary version 9.1.0".to_owned())
                .set_key_value_metadata(Some(vec![entry]))
                .build();
            write_file(&path, &rows(0, 10), properties)
        };
        vec![of_format(1), of_format(2)]
    });
    let query = Query {
        projection: vec![0],
        filter: None,
        late_materialisation: false,
    };
    // The second time, the metadata of the file is at hand.
    for _ in 0..2 {
        let plan = fixture.plan(&query, true);
        let error = collect(plan, Arc::clone(&fixture.task)).await.unwrap_err();
        let error = Error::from(error);
        assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
        for part in [
            "format_2 has format 2",
            "reads up to format 1",
            "(volary version 9.1.0)",
        ] {
            assert!(error.message().contains(part), "{error}");
        }
    }
}
