use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::listing::PartitionedFile;
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::{ExecutionPlan, execute_stream};
use futures::{StreamExt, TryStreamExt};
use object_store::ObjectMeta;
use volary_catalog::Table;
use volary_flight_proto::{Error, ErrorCode, Result, SqlState};
use volary_planner::session_settings::SessionSettings;

use super::csv;
use super::format::Format;
use super::json;
use super::location::CopyLocation;
use super::parquet::ParquetFile;
use crate::load::file_errors;
use crate::load::fit::{self, ColumnMapping};
use crate::load::lines::{LineNumbering, first_bad_record};
use crate::load::source::RowStream;

/// Size in bytes of the ranges into which a Parquet file is divided. Partitions read them in
/// parallel.
const RANGE_BYTES: u64 = 64 << 20;

/// A part of a file that is read separately.
pub(super) struct ReadUnit {
    name: String,
    /// The columns with the types in which they are read.
    schema: SchemaRef,
    mapping: ColumnMapping,
    numbering: LineNumbering,
    reader: UnitReader,
}

/// The reader of a unit.
enum UnitReader {
    Scan(Arc<dyn ExecutionPlan>),
    Json {
        file: json::JsonFile,
        reading: json::JsonReading,
    },
}

/// Divides a file into units. `name` is the file's name.
///
/// # Errors
/// `INVALID_ARGUMENT` for options and columns that do not fit. `DATA_LOSS` for a damaged file. Also
/// the errors of the store.
pub(super) async fn divide_file(
    location: &CopyLocation<'_>,
    file: ObjectMeta,
    name: &str,
) -> Result<Vec<ReadUnit>> {
    match Format::detect(location.copy, name, location.is_local())? {
        Format::Parquet => parquet_units(location, file, name).await,
        Format::Csv {
            delimiter,
            compression,
        } => {
            let format = csv::csv_format(location.copy, delimiter, compression)?;
            Ok(vec![csv_unit(location, &format, file, name).await?])
        }
        Format::Json { compression } => {
            Ok(vec![json_unit(location, compression, &file, name).await?])
        }
    }
}

async fn parquet_units(
    location: &CopyLocation<'_>,
    file: ObjectMeta,
    name: &str,
) -> Result<Vec<ReadUnit>> {
    csv::refuse_options(location.copy)?;
    let opened = ParquetFile::open(&location.store, &file).await?;
    let inferred = opened.schema()?;
    let columns = map_columns(location, &names(&inferred))?;
    require_listed_columns(location, &columns, &inferred)?;
    let mut loaded: Vec<usize> = columns
        .loaded_columns()
        .filter_map(|(_, in_file)| in_file)
        .collect();
    loaded.sort_unstable();
    let schema = Arc::new(inferred.project(&loaded).map_err(DataFusionError::from)?);
    let columns = map_columns(location, &names(&schema))?;
    let mut units = Vec::new();
    for part in ranges(file) {
        units.push(ReadUnit {
            name: name.to_owned(),
            schema: Arc::clone(&schema),
            mapping: columns.clone(),
            numbering: LineNumbering::None,
            reader: UnitReader::Scan(opened.scan(location.url.object_store(), part, &schema)),
        });
    }
    Ok(units)
}

fn ranges(file: ObjectMeta) -> Vec<PartitionedFile> {
    let size = file.size;
    if size <= RANGE_BYTES {
        return vec![PartitionedFile::new_from_meta(file)];
    }
    // The conversion cannot fail, because offsets in files are far below 2⁶³ bytes.
    let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
    (0..size.div_ceil(RANGE_BYTES))
        .map(|part| {
            let start = part * RANGE_BYTES;
            let end = size.min(start + RANGE_BYTES);
            PartitionedFile::new_from_meta(file.clone()).with_range(signed(start), signed(end))
        })
        .collect()
}

/// Returns the unit of a CSV file. The file is not divided, so that errors can name the line. All
/// its columns are in the schema, because the reader finds columns by position.
async fn csv_unit(
    location: &CopyLocation<'_>,
    format: &dyn FileFormat,
    file: ObjectMeta,
    name: &str,
) -> Result<ReadUnit> {
    let inferred = format
        .infer_schema(location.state, &location.store, std::slice::from_ref(&file))
        .await
        .map_err(file_errors::explain_text_error)?;
    let names = csv::column_names(location.table, location.copy, &inferred)?;
    let columns = map_columns(location, &names)?;
    require_listed_columns(location, &columns, &inferred)?;
    // The CSV reader can parse whole numbers without loss, and is faster than `fit`. But programs
    // that keep whole numbers as floating point write 5 as 5.0, which only `fit` can parse.
    let integers_are_whole = columns.loaded_columns().all(|(column, in_file)| {
        let wanted = location.table.schema().field(column).data_type();
        let found = in_file.map(|position| inferred.field(position).data_type());
        !wanted.is_integer() || found.is_none_or(|found| !found.is_floating())
    });
    let is_text = |wanted: &DataType| {
        fit::is_parsed_type(wanted) && !(wanted.is_integer() && integers_are_whole)
    };
    let schema = read_schema(location.table, &names, &columns, is_text);
    let part = PartitionedFile::new_from_meta(file);
    Ok(ReadUnit {
        name: name.to_owned(),
        mapping: columns,
        numbering: LineNumbering::Csv {
            has_header: csv::has_header(location.copy),
        },
        reader: scan(location, format, part, &schema).await?,
        schema,
    })
}

/// Returns the unit of a JSON file. A column of the table that is not in the first records may
/// still occur in later records. A record without the name of a column gets the column's default.
async fn json_unit(
    location: &CopyLocation<'_>,
    compression: CompressionTypeVariant,
    file: &ObjectMeta,
    name: &str,
) -> Result<ReadUnit> {
    csv::refuse_options(location.copy)?;
    let file = json::JsonFile {
        store: Arc::clone(&location.store),
        path: file.location.clone(),
        compression: FileCompressionType::from(compression),
    };
    let first_names = file.names().await?;
    let names: Vec<String> = map_columns(location, &first_names)?
        .loaded_columns()
        .map(|(column, in_file)| match in_file {
            Some(position) => first_names[position].clone(),
            None => location.table.schema().field(column).name().clone(),
        })
        .collect();
    let columns = map_columns(location, &names)?;
    let schema = read_schema(location.table, &names, &columns, fit::is_parsed_type);
    let (columns, with_default) = columns.with_presence(names.len());
    let with_presence = with_default.into_iter().map(|column| names[column].clone());
    let reading = json::JsonReading {
        schema: Arc::clone(&schema),
        ignores_unknown: !location.copy.columns.is_empty(),
        with_presence: with_presence.collect(),
    };
    Ok(ReadUnit {
        name: name.to_owned(),
        schema,
        mapping: columns,
        numbering: LineNumbering::Json,
        reader: UnitReader::Json { file, reading },
    })
}

fn names(schema: &Schema) -> Vec<String> {
    let names = schema.fields().iter().map(|field| field.name().clone());
    names.collect()
}

fn map_columns(location: &CopyLocation<'_>, names: &[String]) -> Result<ColumnMapping> {
    let table = location.table;
    let zone = SessionSettings::time_zone(location.state.config_options());
    let chosen = &location.copy.columns;
    let defaults = location.defaults.clone();
    let name = table.name().to_string();
    ColumnMapping::from_names(&name, table.schema(), names, chosen, zone, defaults)
}

/// Refuses a file that lacks one of the columns that the statement lists. If the statement lists no
/// columns, the columns that the file lacks have their defaults.
fn require_listed_columns(
    location: &CopyLocation<'_>,
    columns: &ColumnMapping,
    file: &Schema,
) -> Result<()> {
    let missing = columns
        .loaded_columns()
        .find(|(_, in_file)| in_file.is_none());
    match missing {
        Some((column, _)) if !location.copy.columns.is_empty() => Err(Error::invalid(format!(
            "the file has no column {}; it has {}",
            location.table.schema().field(column).name(),
            names(file).join(", ")
        ))
        .with_sqlstate(SqlState::UndefinedColumn)),
        _ => Ok(()),
    }
}

/// Returns the schema with which the columns with these names are read. A column has the table's
/// type, or is text if [`fit`] parses it. All columns are nullable here: NOT NULL is checked later,
/// where the error can name the column. Columns that are not loaded are read as type Null.
fn read_schema(
    table: &Table,
    names: &[String],
    columns: &ColumnMapping,
    is_text: impl Fn(&DataType) -> bool,
) -> SchemaRef {
    let fields = names.iter().enumerate().map(|(position, name)| {
        let wanted = columns
            .table_position(position)
            .map(|column| table.schema().field(column).data_type());
        match wanted {
            // The name is replaced, because several columns that are not loaded may have the same
            // name.
            None => Field::new(format!("not loaded {position}"), DataType::Null, true),
            Some(wanted) if is_text(wanted) => Field::new(name, DataType::Utf8View, true),
            Some(wanted) => Field::new(name, wanted.clone(), true),
        }
    });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}

async fn scan(
    location: &CopyLocation<'_>,
    format: &dyn FileFormat,
    part: PartitionedFile,
    schema: &SchemaRef,
) -> Result<UnitReader> {
    let source = format.file_source(TableSchema::from(Arc::clone(schema)));
    let config = FileScanConfigBuilder::new(location.url.object_store(), source)
        .with_file(part)
        .build();
    let plan = format.create_physical_plan(location.state, config).await?;
    Ok(UnitReader::Scan(plan))
}

impl ReadUnit {
    /// Returns the name of the file.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the rows of the unit with the table's columns.
    ///
    /// # Errors
    /// The errors of starting the reader. In a text file, the errors of rows name the line.
    pub(super) fn rows(self, table: &Arc<Table>, task: &Arc<TaskContext>) -> Result<RowStream> {
        let rows = match &self.reader {
            UnitReader::Scan(plan) => {
                let rows = execute_stream(Arc::clone(plan), Arc::clone(task))?;
                match self.numbering {
                    LineNumbering::None => rows.map_err(Error::from).boxed(),
                    _ => rows.map_err(file_errors::explain_text_error).boxed(),
                }
            }
            UnitReader::Json { file, reading } => {
                file.rows(reading, task.session_config().batch_size())
            }
        };
        let (unit, table) = (Arc::new(self), Arc::clone(table));
        let fitted = rows.scan(0, move |read, batch| {
            let before = *read;
            *read += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
            let (unit, table) = (Arc::clone(&unit), Arc::clone(&table));
            async move {
                Some(match batch {
                    Ok(batch) => unit.fit(&table, &batch, before),
                    Err(error) => Err(unit.add_line(&table, error, before).await),
                })
            }
        });
        Ok(fitted.boxed())
    }

    /// Fits a batch to the table's columns. `read` is the number of records that were read before
    /// the batch.
    fn fit(&self, table: &Table, batch: &RecordBatch, read: u64) -> Result<RecordBatch> {
        self.mapping.fit(table.schema(), batch).map_err(|misfit| {
            match misfit
                .row()
                .and_then(|row| self.numbering.line_of_row(read, row))
            {
                Some(line) => misfit.in_line(line),
                None => misfit.in_table(&table.name().to_string()),
            }
        })
    }

    /// Adds the line to an error of the reader. `read` is the number of records that were read
    /// before the error.
    async fn add_line(&self, table: &Table, error: Error, read: u64) -> Error {
        match (&self.reader, self.numbering) {
            (UnitReader::Scan(_), LineNumbering::Csv { has_header }) => {
                file_errors::explain_row_error(error, &self.schema, has_header)
            }
            (UnitReader::Json { file, reading }, _)
                if error.code() == ErrorCode::InvalidArgument =>
            {
                match first_bad_record(file.rows(reading, 1)).await {
                    Some((line, error)) => {
                        explain_unknown_column(table, error).at(format!("line {line}"))
                    }
                    None => error.at(format!("after line {read}")),
                }
            }
            _ => error,
        }
    }
}

/// Converts the error for a JSON record with an unknown column into the error that the other
/// formats report.
fn explain_unknown_column(table: &Table, error: Error) -> Error {
    let Some(column) = file_errors::unknown_column_name(&error) else {
        return error;
    };
    match fit::position_of(&table.name().to_string(), table.schema(), column) {
        Err(error) => error,
        Ok(position) => Error::invalid(format!(
            "column {column}: the first records use another name for column {}; use the same name in all records",
            table.schema().field(position).name()
        )),
    }
}
