//! COPY: which files, in which format.

use std::sync::Arc;

use arrow::datatypes::{Field, Schema, SchemaRef};
use datafusion::common::parsers::CompressionTypeVariant;
use datafusion::datasource::file_format::FileFormat;
use datafusion::datasource::file_format::csv::CsvFormat;
use datafusion::datasource::file_format::file_compression_type::FileCompressionType;
use datafusion::datasource::file_format::json::JsonFormat;
use datafusion::datasource::file_format::parquet::ParquetFormat;
use datafusion::datasource::listing::{ListingTableUrl, PartitionedFile};
use datafusion::datasource::physical_plan::FileScanConfigBuilder;
use datafusion::datasource::table_schema::TableSchema;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::SessionState;
use datafusion::physical_plan::execute_stream;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectMeta, ObjectStore};
use url::Url;
use volary_flight_proto::{Error, ErrorCode, Result};

use super::copy::CopyFrom;
use super::lines::Lines;
use super::roots::Roots;
use super::source::{Rows, Source};
use super::{file_errors, fit};
use crate::catalog::Table;
use crate::config::Load;

/// A Parquet file is read in ranges of this size, by several partitions.
const RANGE_BYTES: u64 = 64 << 20;
/// Rows of a JSON file that are looked at for the names of its columns.
const JSON_NAMES_ROWS: usize = 1_000;

/// Opens the files that COPY names, all of them checked before the first row is read.
///
/// # Errors
/// `PERMISSION_DENIED` outside the allowed roots, `NOT_FOUND` where there is no file, `DATA_LOSS` for a damaged one, and
/// `INVALID_ARGUMENT` for options and columns that do not fit; errors name the file.
pub async fn open(
    config: &Load,
    state: &SessionState,
    table: &Arc<Table>,
    copy: &CopyFrom,
) -> Result<Source> {
    let roots = Roots::parse(&config.allowed_roots)?;
    roots.check(&copy.location)?;
    let url = ListingTableUrl::parse(&copy.location)?;
    let location = Location {
        store: object_store(state, &url)?,
        url,
        state,
        table,
        copy,
    };
    let files = location.files().await?;
    let partitions = state.config().target_partitions();
    let mut units: Vec<Vec<Unit>> = (0..partitions).map(|_| Vec::new()).collect();
    let mut next = 0;
    for file in files {
        let name = location.name_of(&file);
        roots.check_file(&name)?;
        let format = Format::of(copy, &name)?;
        for unit in format
            .units(&location, file, &name)
            .await
            .map_err(|error| error.at(format!("file {name}")))?
        {
            units[next % partitions].push(unit);
            next += 1;
        }
    }
    let streams = units
        .into_iter()
        .filter(|units| !units.is_empty())
        .map(|units| read(units, state, table))
        .collect();
    Ok(Source::new(streams))
}

/// Where the files of a COPY are, and what they are read for.
struct Location<'a> {
    state: &'a SessionState,
    url: ListingTableUrl,
    store: Arc<dyn ObjectStore>,
    table: &'a Arc<Table>,
    copy: &'a CopyFrom,
}

impl Location<'_> {
    async fn files(&self) -> Result<Vec<ObjectMeta>> {
        let mut files: Vec<ObjectMeta> = self
            .url
            .list_all_files(self.state, self.store.as_ref(), "")
            .await?
            .try_filter(|file| {
                // Hidden files and markers such as _SUCCESS are no data.
                let name = file.location.filename().unwrap_or_default();
                futures::future::ready(!name.starts_with(['.', '_']) && file.size > 0)
            })
            .try_collect()
            .await?;
        if files.is_empty() {
            return Err(Error::not_found(format!(
                "COPY {}: there is no file at {}, or it is empty",
                self.copy.table, self.copy.location
            )));
        }
        files.sort_by(|left, right| left.location.cmp(&right.location));
        Ok(files)
    }

    fn name_of(&self, file: &ObjectMeta) -> String {
        match self.url.scheme() {
            "file" => format!("/{}", file.location),
            _ => format!("{}{}", self.url.object_store().as_str(), file.location),
        }
    }
}

/// The store of a URL, with credentials from the gateway's environment.
fn object_store(state: &SessionState, url: &ListingTableUrl) -> Result<Arc<dyn ObjectStore>> {
    let place = url.object_store();
    if let Ok(store) = state.runtime_env().object_store(&place) {
        return Ok(store);
    }
    let (store, _) = object_store::parse_url_opts(url.get_url(), std::env::vars())
        .map_err(datafusion::error::DataFusionError::from)?;
    let store: Arc<dyn ObjectStore> = Arc::from(store);
    let base = Url::parse(place.as_str()).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("URL {}", url.as_str()),
            source,
        )
    })?;
    state
        .runtime_env()
        .register_object_store(&base, Arc::clone(&store));
    Ok(store)
}

/// A file's format and how it is compressed.
#[derive(Debug, Clone, Copy)]
enum Format {
    Parquet,
    Csv {
        delimiter: u8,
        compression: CompressionTypeVariant,
    },
    Json {
        compression: CompressionTypeVariant,
    },
}

/// A part of a file that is read by itself.
struct Unit {
    name: String,
    /// The file's columns.
    columns: SchemaRef,
    lines: Lines,
    plan: Arc<dyn datafusion::physical_plan::ExecutionPlan>,
}

impl Format {
    fn of(copy: &CopyFrom, name: &str) -> Result<Self> {
        let mut stem = name.to_lowercase();
        let mut compression = CompressionTypeVariant::UNCOMPRESSED;
        for (suffix, variant) in [
            (".gz", CompressionTypeVariant::GZIP),
            (".zst", CompressionTypeVariant::ZSTD),
            (".bz2", CompressionTypeVariant::BZIP2),
            (".xz", CompressionTypeVariant::XZ),
        ] {
            if let Some(rest) = stem.strip_suffix(suffix) {
                (stem, compression) = (rest.to_owned(), variant);
                break;
            }
        }
        let extension = stem.rsplit_once('.').map_or("", |(_, extension)| extension);
        let stated = copy
            .options
            .get("format")
            .map(|format| format.to_lowercase());
        match stated.as_deref().unwrap_or(extension) {
            "parquet" | "parq" => Ok(Self::Parquet),
            "csv" => Ok(Self::Csv {
                delimiter: b',',
                compression,
            }),
            "tsv" => Ok(Self::Csv {
                delimiter: b'\t',
                compression,
            }),
            "json" | "ndjson" | "jsonl" => Ok(Self::Json { compression }),
            other => Err(Error::invalid(format!(
                "file {name}: format \"{other}\" is not known; add WITH (FORMAT parquet), csv or json"
            ))),
        }
    }

    async fn units(
        self,
        location: &Location<'_>,
        file: ObjectMeta,
        name: &str,
    ) -> Result<Vec<Unit>> {
        let (url, store) = (&location.url, &location.store);
        let (state, table, copy) = (location.state, location.table, location.copy);
        let format = self.file_format(copy)?;
        let schema = match self {
            Self::Parquet => {
                format
                    .infer_schema(state, store, std::slice::from_ref(&file))
                    .await?
            }
            Self::Csv { .. } => {
                let inferred = format
                    .infer_schema(state, store, std::slice::from_ref(&file))
                    .await
                    .map_err(file_errors::of_opening)?;
                csv_schema(table, copy, &inferred, has_header(copy)?)?
            }
            Self::Json { .. } => {
                let inferred = format
                    .infer_schema(state, store, std::slice::from_ref(&file))
                    .await;
                match inferred {
                    Ok(inferred) => named_schema(table, &inferred)?,
                    Err(error) => {
                        let schema = named_schema(table, table.schema())?;
                        let source = format.file_source(TableSchema::from(schema));
                        let config = FileScanConfigBuilder::new(url.object_store(), source)
                            .with_file(PartitionedFile::new_from_meta(file))
                            .build();
                        let plan = format.create_physical_plan(state, config).await?;
                        let error = file_errors::of_opening(error);
                        let columns = table.schema();
                        let task = state.task_ctx();
                        return Err(Lines::Json.of_reading(error, 0, columns, plan, &task).await);
                    }
                }
            }
        };
        for field in schema.fields() {
            fit::position_of(table.name(), table.schema(), field.name())?;
        }
        let mut units = Vec::new();
        for part in self.parts(file) {
            let source = format.file_source(TableSchema::from(Arc::clone(&schema)));
            let config = FileScanConfigBuilder::new(url.object_store(), source)
                .with_file(part)
                .build();
            units.push(Unit {
                name: name.to_owned(),
                columns: Arc::clone(&schema),
                lines: self.lines(copy)?,
                plan: format.create_physical_plan(state, config).await?,
            });
        }
        Ok(units)
    }

    fn lines(self, copy: &CopyFrom) -> Result<Lines> {
        Ok(match self {
            Self::Parquet => Lines::None,
            Self::Csv { .. } => Lines::Csv {
                has_header: has_header(copy)?,
            },
            Self::Json { .. } => Lines::Json,
        })
    }

    /// Text is read whole, so that errors can name the line.
    fn parts(self, file: ObjectMeta) -> Vec<PartitionedFile> {
        let size = file.size;
        match self {
            Self::Parquet if size > RANGE_BYTES => (0..size.div_ceil(RANGE_BYTES))
                .map(|part| {
                    let start = part * RANGE_BYTES;
                    let end = size.min(start + RANGE_BYTES);
                    // Ranges of files are far below 2⁶³ bytes.
                    let signed = |offset: u64| i64::try_from(offset).unwrap_or(i64::MAX);
                    PartitionedFile::new_from_meta(file.clone())
                        .with_range(signed(start), signed(end))
                })
                .collect(),
            _ => vec![PartitionedFile::new_from_meta(file)],
        }
    }

    fn file_format(self, copy: &CopyFrom) -> Result<Arc<dyn FileFormat>> {
        Ok(match self {
            Self::Parquet => Arc::new(ParquetFormat::default()),
            Self::Json { compression } => Arc::new(
                JsonFormat::default()
                    .with_schema_infer_max_rec(JSON_NAMES_ROWS)
                    .with_file_compression_type(FileCompressionType::from(compression)),
            ),
            Self::Csv {
                delimiter,
                compression,
            } => {
                check_null(copy)?;
                Arc::new(
                    CsvFormat::default()
                        .with_has_header(has_header(copy)?)
                        .with_delimiter(one_byte(copy, "delimiter")?.unwrap_or(delimiter))
                        .with_quote(one_byte(copy, "quote")?.unwrap_or(b'"'))
                        .with_escape(one_byte(copy, "escape")?)
                        // Quoted line breaks are data; the file is read from its start by one reader.
                        .with_newlines_in_values(true)
                        .with_file_compression_type(FileCompressionType::from(compression)),
                )
            }
        })
    }
}

/// The CSV reader knows one NULL: a field without text.
fn check_null(copy: &CopyFrom) -> Result<()> {
    match copy.options.get("null") {
        Some(text) if !text.is_empty() => Err(Error::invalid(format!(
            "NULL '{text}' is not supported: a field without text is NULL; convert the file, or leave the option out"
        ))),
        _ => Ok(()),
    }
}

fn has_header(copy: &CopyFrom) -> Result<bool> {
    match copy
        .options
        .get("header")
        .map(|text| text.to_lowercase())
        .as_deref()
    {
        None => Ok(copy.columns.is_empty()),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(other) => Err(Error::invalid(format!(
            "HEADER takes true or false, not {other}"
        ))),
    }
}

fn one_byte(copy: &CopyFrom, option: &str) -> Result<Option<u8>> {
    match copy.options.get(option).map(String::as_bytes) {
        None => Ok(None),
        Some([byte]) => Ok(Some(*byte)),
        Some(_) => Err(Error::invalid(format!(
            "{} takes one ASCII character",
            option.to_uppercase()
        ))),
    }
}

/// The file's columns by the header, by the statement's list, or by the table's order; their types are the table's.
fn csv_schema(
    table: &Table,
    copy: &CopyFrom,
    inferred: &Schema,
    header: bool,
) -> Result<SchemaRef> {
    let names: Vec<String> = if header {
        inferred
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    } else if copy.columns.is_empty() {
        table
            .schema()
            .fields()
            .iter()
            .map(|field| field.name().clone())
            .collect()
    } else {
        copy.columns.clone()
    };
    if names.len() != inferred.fields().len() {
        return Err(Error::invalid(format!(
            "the file has {} columns and {} are expected ({})",
            inferred.fields().len(),
            names.len(),
            names.join(", ")
        )));
    }
    let names: Vec<Field> = names
        .into_iter()
        .map(|name| Field::new(name, arrow::datatypes::DataType::Null, true))
        .collect();
    named_schema(table, &Schema::new(names))
}

/// The table's types for columns of these names. NULLs are let through here: what a column takes is checked with its name.
fn named_schema(table: &Table, named: &Schema) -> Result<SchemaRef> {
    let fields = named
        .fields()
        .iter()
        .map(|field| {
            let position = fit::position_of(table.name(), table.schema(), field.name())?;
            let data_type = table.schema().field(position).data_type().clone();
            Ok(Field::new(field.name(), data_type, true))
        })
        .collect::<Result<Vec<_>>>()?;
    Ok(Arc::new(Schema::new(fields)))
}

/// The units' rows, one unit after the other, as the table's columns.
fn read(units: Vec<Unit>, state: &SessionState, table: &Arc<Table>) -> Rows {
    let (task, table) = (state.task_ctx(), Arc::clone(table));
    stream::iter(units)
        .map(move |unit| {
            let rows = rows_of(&unit, &table, &task);
            let name = unit.name;
            let at = move |error: Error| error.at(format!("file {name}"));
            match rows {
                Ok(rows) => Ok(rows.map_err(at)),
                Err(error) => Err(at(error)),
            }
        })
        .try_flatten()
        .boxed()
}

fn rows_of(unit: &Unit, table: &Arc<Table>, task: &Arc<TaskContext>) -> Result<Rows> {
    let rows = execute_stream(Arc::clone(&unit.plan), Arc::clone(task))?;
    let (lines, columns, plan) = (
        unit.lines,
        Arc::clone(&unit.columns),
        Arc::clone(&unit.plan),
    );
    let (table, task) = (Arc::clone(table), Arc::clone(task));
    let fitted = rows.scan(0, move |read, batch| {
        let before = *read;
        *read += batch.as_ref().map_or(0, |batch| batch.num_rows() as u64);
        let (columns, plan) = (Arc::clone(&columns), Arc::clone(&plan));
        let (table, task) = (Arc::clone(&table), Arc::clone(&task));
        async move {
            Some(match batch {
                Ok(batch) => fit::by_name(table.name(), table.schema(), &batch)
                    .map_err(|error| lines.of_null(error, before, &batch, table.schema())),
                Err(error) => Err(lines
                    .of_reading(error.into(), before, &columns, plan, &task)
                    .await),
            })
        }
    });
    Ok(fitted.boxed())
}
